"""Torch gives what numpy gives, and is asked only for work that pays."""

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from feddbn import AS_THEY_ARE, FDBNL, PFDBNL, PersonalRounds, simulate
from feddbn.core.backend import device as backend
from feddbn.core.backend import torch_device
from feddbn.core.backend.device import DEVICES, HOST, one_thread, pays, product
from feddbn.core.backend.torch_device import AutoDevice, open_device
from feddbn.core.designs.recordings import Block
from feddbn.core.penalised.acyclicity import expm_value_and_grad, get_acyclicity
from feddbn.core.penalised.consensus import gradient_answers
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import MissingExtra, ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.methods.base import simulated
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import refused

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def torch_on_cpu():
    pytest.importorskip("torch")
    from feddbn.core.backend.torch_device import TorchDevice

    return TorchDevice("cpu", takes_all=True)


@pytest.fixture
def counted(torch_on_cpu, monkeypatch):
    """What a device was given, so that a test of equality cannot pass because nothing went there."""
    carried = []
    put = torch_on_cpu.put
    monkeypatch.setattr(torch_on_cpu, "put", lambda array: carried.append(array.shape) or put(array))
    return carried


def no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


# Norms without a squaring, with several in one stack, balanced, and too far for any.
@pytest.mark.parametrize("sizes", [(0.01, 0.02), (0.1, 0.6, 1.5), (0.3, 4.0), (0.3, 1e6), (0.0,)])
@pytest.mark.parametrize("d", [1, 7, 40])
def test_h_and_its_gradient_are_those_of_numpy(torch_on_cpu, counted, sizes, d):
    rng = np.random.default_rng(d)
    W = np.array(sizes)[:, None, None] * rng.normal(size=(len(sizes), d, d))
    h, grad = expm_value_and_grad(W)
    h_there, grad_there = get_acyclicity("expm", torch_on_cpu)(W)
    assert (len(sizes), d, d) in counted
    np.testing.assert_allclose(h_there, h, rtol=1e-10)
    np.testing.assert_allclose(grad_there, grad, rtol=1e-10, atol=1e-14)


def test_a_small_h_keeps_its_digits_on_a_device(torch_on_cpu):
    # One cycle of three: h = 3 (x^6 / 3! ...) = x^6 / 2 to first order, far below the rounding of a trace of d.
    W = np.zeros((1, 30, 30))
    W[0, [0, 1, 2], [1, 2, 0]] = 1e-3
    h, _ = expm_value_and_grad(W, torch_on_cpu)
    assert h[0] == pytest.approx(0.5e-18, rel=1e-9)


@pytest.mark.parametrize("n_lags", [0, 1, 3])
@pytest.mark.parametrize("lengths", [(50, 3, 1, 200), (4,), (2, 2)])
def test_moments_are_those_of_numpy(torch_on_cpu, counted, n_lags, lengths):
    rng = np.random.default_rng(n_lags)
    # Blocks that continue a segment and some that begin one, far from zero.
    blocks = [Block(rng.normal(size=(n, 4)) + 1e4, i % 2 == 0) for i, n in enumerate(lengths)]
    here = Moments.of_blocks(blocks, n_lags, 4)
    for chunk_rows in (None, 7):
        there = Moments.of_blocks(blocks, n_lags, 4, chunk_rows, torch_on_cpu)
        assert there.n == here.n
        np.testing.assert_allclose(there.mean, here.mean, rtol=1e-13)
        np.testing.assert_allclose(
            there.scatter, here.scatter, rtol=1e-8, atol=1e-8 * np.abs(here.scatter).max()
        )
    assert bool(counted) == (here.n > 0)


def test_gradients_of_rounds_are_those_of_numpy(torch_on_cpu, counted):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(3, 50, 12))
    G, C = rows.transpose(0, 2, 1) @ rows, rng.normal(size=(12, 6))
    np.testing.assert_allclose(
        gradient_answers(G, C, torch_on_cpu), gradient_answers(G, C), rtol=1e-12, atol=1e-10
    )
    assert (36, 12) in counted


def test_arrays_that_cannot_be_written_to_and_slices_are_carried(torch_on_cpu):
    A = np.arange(24.0).reshape(4, 6)
    A.flags.writeable = False
    np.testing.assert_array_equal(torch_on_cpu.get(torch_on_cpu.put(A)), A)
    np.testing.assert_array_equal(torch_on_cpu.get(torch_on_cpu.put(A[::2, ::-1])), A[::2, ::-1])
    own = torch_on_cpu.put(A)
    own += 1.0
    assert A[0, 0] == 0.0


def placed(sites, device):
    """Sites of this process whose large products are made by a device."""
    return InProcessFederation(
        {name: Site(name, data, device=device) for name, data in read_sites(sites).items()}
    )


@needs_torch
def test_a_whole_fit_is_that_of_numpy(torch_on_cpu, counted, monkeypatch):
    """The one device serves the server's acyclicity and the sites' rows and gradients."""
    sites = simulate(d=6, n_sites=3, n_samples=200, random_state=1).sites
    for schedule in ("gram", "rounds"):
        quick = {"optimum": "path", "schedule": schedule, "prepare": AS_THEY_ARE}
        here = FDBNL(**quick).fit(sites)
        there = FDBNL(federation=placed(sites, torch_on_cpu), **quick).fit(None)
        np.testing.assert_allclose(there.W_, here.W_, atol=1e-8)
        np.testing.assert_allclose(there.A_, here.A_, atol=1e-8)
        assert there.n_rounds_ == here.n_rounds_
    assert {(1, 6, 6), (12, 12), (68, 6)} <= set(counted)


@needs_torch
def test_sites_with_networks_of_their_own_multiply_there(torch_on_cpu, counted, monkeypatch):
    sites = simulate(d=4, n_sites=2, n_samples=120, random_state=4).sites
    quick = {"rounds": PersonalRounds(max_rounds=60), "prepare": replace(AS_THEY_ARE, on_disagreement="warn")}
    here = PFDBNL(**quick).fit(sites)
    there = PFDBNL(federation=placed(sites, torch_on_cpu), **quick).fit(None)
    assert (2, 4, 4) in counted
    for name, dbn in there.dbns_.items():
        np.testing.assert_allclose(dbn.W, here.dbns_[name].W, atol=1e-8)


def test_work_pays_if_it_is_long_and_uses_its_bytes():
    assert pays(1e9, 1e6)
    assert not pays(1e7, 1e5), "too short"
    assert not pays(1e9, 1e9), "one operation a byte"


def test_auto_starts_a_gpu_only_for_a_fit_that_is_longer_than_the_start(monkeypatch):
    gpu = object()
    asked = []
    real = open_device
    monkeypatch.setattr(torch_device, "open_device", lambda name: asked.append(name) or gpu)
    auto = real("auto")
    assert auto.of(1e9, 1e6) is HOST
    assert not asked
    assert auto.of(1e9, 1e6, times=300) is gpu
    assert auto.of(1e12, 1e12, times=300) is HOST
    # Matrix exponentials from some 400 variables on.
    for d, there in ((200, False), (420, True)):
        found = []
        monkeypatch.setattr(
            auto, "of", lambda *work, found=found: found.append(AutoDevice.of(auto, *work)) or HOST
        )
        expm_value_and_grad(np.full((1, d, d), 1e-2), auto)
        assert found == [gpu if there else HOST]


def test_small_work_stays_with_numpy_and_does_not_even_import_torch(monkeypatch):
    no_torch(monkeypatch)
    rng = np.random.default_rng(0)
    sites = simulate(d=5, n_sites=2, n_samples=100, random_state=0).sites
    quick = {"optimum": "path", "prepare": AS_THEY_ARE}
    there = FDBNL(federation=simulated(sites, device="auto"), **quick).fit(None)
    here = FDBNL(**quick).fit(sites)
    np.testing.assert_array_equal(there.W_raw_, here.W_raw_)
    A = rng.normal(size=(20, 20))
    np.testing.assert_array_equal(product(A, A, AutoDevice()), A @ A)


def test_auto_without_torch_or_gpu_is_numpy(monkeypatch):
    no_torch(monkeypatch)
    assert open_device("auto").of(1e12, 8.0) is HOST


def test_bad_devices_get_one_sentence(monkeypatch):
    assert DEVICES == ("cpu", "auto", "cuda")
    with refused(ParameterError, "device='gpu'", *DEVICES):
        open_device("gpu")
    no_torch(monkeypatch)
    with refused(MissingExtra, "'torch'", "feddbn[gpu]"):
        open_device("cuda")


@needs_torch
def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused(ParameterError, "device='cuda'", "device='auto'"):
        open_device("cuda")
    assert open_device("auto").of(1e12, 8.0) is HOST


def test_one_thread_while_it_lasts_and_as_many_as_before_afterwards():
    before = _threads()
    with one_thread():
        assert set(_threads()) == {1}
        with one_thread():
            assert set(_threads()) == {1}
        assert set(_threads()) == {1}
    assert _threads() == before


def _threads():
    return [library["num_threads"] for library in threadpool_info()]


def test_a_library_loaded_later_is_held_too(monkeypatch):
    with one_thread():
        pass
    monkeypatch.setitem(sys.modules, "a_module_added_later", np)
    found = backend._libraries.cache_info().misses
    with one_thread():
        pass
    assert backend._libraries.cache_info().misses == found + 1
