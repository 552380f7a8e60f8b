"""Several modules: a site's owner says where its products are made; studies do not see it."""

import logging

import numpy as np
import pandas as pd
import pytest

from feddbn.core.backend.device import HOST
from feddbn.core.backend.torch_device import AutoDevice
from feddbn.data import MemorySite, read_sites
from feddbn.errors import FileError
from feddbn.federation.protocol.site import Site
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.open_site import open_site


def opened(place, line):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    rows.to_csv(place / "rows.csv", index=False)
    (place / "site.toml").write_text(f'name = "s"\ndata = "rows.csv"\nstate = "state"\n{line}\n')
    return open_site(read_site_settings(place / "site.toml"), "s", logging.getLogger("test"))


def test_the_settings_name_the_device_of_the_site(tmp_path):
    assert opened(tmp_path, "")._site.device is HOST
    assert isinstance(opened(tmp_path, 'device = "auto"')._site.device, AutoDevice)


def test_another_word_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(FileError, match=r"device.*'cpu', 'auto' or 'cuda'") as refusal:
        opened(tmp_path, 'device = "gpu"')
    assert "\n" not in str(refusal.value)


def test_a_site_keeps_its_device_when_its_data_are_read_anew():
    data: MemorySite = read_sites({"s": np.zeros((5, 2))})["s"]
    device = AutoDevice()
    site = Site("s", data, device=device).with_data(data)
    assert site.here.device is device
