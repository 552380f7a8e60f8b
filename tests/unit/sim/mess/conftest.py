import numpy as np
import pytest

from support.messy import values, with_mess


@pytest.fixture(scope="package")
def clean():
    """The federation without mess."""
    return with_mess()


@pytest.fixture(scope="package")
def rows(clean):
    """Its recordings, one per site."""
    return values(clean)


@pytest.fixture(scope="package")
def spread(rows):
    """The standard deviations of its variables."""
    return np.vstack(rows).std(axis=0)
