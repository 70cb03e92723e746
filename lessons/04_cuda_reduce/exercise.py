"""Lesson 04: kernels, and what must wait for them. Blanks 04.1 to 04.3 are in exercise.cu.

    ./run check 04          which blank is next, or the smallest case that goes wrong

The last two are here. A GPU works behind the back of the program: to launch a kernel, or to start a
copy, is to put it into a queue, the *stream*. The GPU does what is in it, one after the other,
while the program goes on. MPI knows nothing of that: it reads and writes memory at once.

    device --copy--> host buffer --MPI--> host buffer --copy--> device

So a rank sends by `outgoing`, and gets what has arrived by `arrived`. Both have a `way`, with

    way.incoming(x)                     lends a host buffer of x.nbytes bytes
    way.device.to_host(x, buffer)       puts a copy from the device array x into the stream
    way.device.from_host(buffer, x)     puts a copy to the device array x into the stream
    way.device.synchronise()            returns when everything in the stream has been done
"""

from pathlib import Path

from minidist.learn.kernels import kernel

KERNELS = Path(__file__).with_name("exercise.cu")

add_f32 = kernel(KERNELS, "add_f32")
sum_sequential = kernel(KERNELS, "sum_sequential")
add_scaled_f32_stride = kernel(KERNELS, "add_scaled_f32_stride")


def outgoing(way, x):
    """Return a host buffer with the bytes of the device array ``x``, for MPI to read at once.

    A kernel that fills ``x`` may have been launched just before, and not have begun. The message
    must hold what that kernel writes:

        stream    [ kernel fills x ]
        after     [ ]                       and the buffer holds what the kernel has written
    """
    raise NotImplementedError(
        "04.4: borrow a buffer, put the copy into the stream, wait, and return the buffer"
    )


def arrived(way, buffer, x):
    """Bring what MPI has received into ``buffer`` to the device array ``x``; then it may be read.

    When it returns, ``x`` holds the message, whoever reads it next and in whatever stream, and
    the buffer may be used for another message.
    """
    raise NotImplementedError("04.5: put the copy into the stream, and wait for it")
