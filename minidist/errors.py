"""Every exception that minidist raises on purpose, in one place.

A message names the rank (where there is one), the operation, the offending value, and what to do
about it. All of them are `MinidistError`, so a caller can catch the lot; each also keeps the
built-in family that Python users expect (a wrong argument is a ValueError).
"""


class MinidistError(Exception):
    """Base of all errors below."""


class ConfigError(MinidistError, ValueError):
    """A configuration that cannot be computed, refused before anything runs."""


class RankError(MinidistError, ValueError):
    """A rank or a tag that does not exist on this communicator."""


class ArrayError(MinidistError, ValueError):
    """An array that cannot be sent or reduced: layout, dtype, size or overlap."""


class MismatchError(MinidistError, RuntimeError):
    """Two ranks met in one operation with another name, size or dtype."""


class DeadlockError(MinidistError, RuntimeError):
    """No rank can go on: each waits for a message that nobody will send."""


class LivelockError(DeadlockError):
    """Ranks keep testing requests, and nothing ever arrives."""


class StuckError(MinidistError, TimeoutError):
    """A rank computes or waits for longer than the limit."""


class DeviceError(MinidistError, RuntimeError):
    """A device that is not there, or not enough of them."""


class LaunchError(MinidistError, RuntimeError):
    """Ranks that cannot be started, or a world that is not the one asked for."""


class StepError(MinidistError, RuntimeError):
    """The calls of a training step in a wrong order."""


class DivergedError(MinidistError, ArithmeticError):
    """Training whose numbers are no longer finite; raised on all ranks alike."""


class MemoryLimitError(MinidistError, MemoryError):
    """A rank that would hold more bytes than it may; the message is the table of what it holds."""


class DataError(MinidistError, ValueError):
    """A corpus that cannot be read or is too small."""


class CheckpointError(MinidistError, RuntimeError):
    """A run folder or a weight file that is missing, damaged or belongs to another model."""


class LessonError(MinidistError, ValueError):
    """A lesson that is not there, or a lesson file that cannot be read."""


class KernelError(MinidistError, RuntimeError):
    """A CUDA kernel that cannot be found, compiled, launched or finished."""


class CompileError(KernelError):
    """Kernel source that a compiler refuses; the message holds what it said."""


class NoCompilerError(KernelError):
    """Nothing on this machine can compile a kernel."""


class ArgumentError(KernelError, TypeError):
    """A launch whose grid, block or arguments do not fit the kernel, refused before it runs."""


class KernelRangeError(KernelError, OverflowError):
    """A number that the declared type of a kernel's parameter cannot hold."""


class KernelTimeout(KernelError, TimeoutError):
    """A kernel that did not end within the limit; it has been stopped."""


class KernelFault(KernelError):
    """What a running kernel did wrong: the access, the line, the block and the thread."""
