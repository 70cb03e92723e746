"""The late device does nothing before it is waited for, and then everything in its order."""

import numpy as np

from minidist.testing.late_device import LateDevice


def test_nothing_happens_before_a_wait_and_all_in_order_at_it():
    device, x, y = LateDevice(), np.zeros((2, 2)), np.zeros((2, 2))
    buffer = device.host_buffer(x.nbytes)
    device.launch(lambda: x.fill(7))
    device.to_host(x, buffer)
    device.launch(lambda: x.fill(8))
    device.from_host(buffer, y)
    assert (x == 0).all()
    assert (y == 0).all()
    assert np.isnan(buffer.view(float)).all()
    device.synchronise()
    assert (x == 8).all()
    assert (y == 7).all()
    assert device.stream == []
