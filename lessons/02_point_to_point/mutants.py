"""Wrong versions of the solutions, one changed line each, and who met it. check.py rejects them.

    ./run check 02 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "send, then receive",
        "02.1",
        "self._check_exchange(send, to, recv, tag)",
        "self.send(send, to, tag); to = None",
        "NVIDIA/nccl#479: two GPUs, both send first, both wait for ever. rsmpi/rsmpi#144: fine "
        "with fewer than 100 elements, a hang with more. Mantevo/miniMD#8 found its own by "
        "reading: MPI allows a send to wait even for 4 bytes.",
    ),
    Mutant(
        "the send is not waited for",
        "02.1",
        "self.wait_all(requests)",
        "self.wait_all(requests[:1])",
        "dealii/dealii#15372: sends were started and nobody waited for them, a race. In #13206 of "
        "the same project one buffer served many sends at once; MPI happened to copy it in time.",
    ),
    Mutant(
        "the receive is not waited for",
        "02.1",
        "self.wait_all(requests)",
        "self.wait_all(requests[-1:])",
        "The array is read before the message is there. With small messages and a fast link it is "
        "there nearly always.",
    ),
    Mutant(
        "the tag is forgotten on one side",
        "02.1",
        "self.irecv(recv, source, tag)",
        "self.irecv(recv, source)",
        "ooples/AiDotNet#845: tags of two kinds of messages overlapped from the hundredth "
        "micro-batch on, so that an activation could be taken for a gradient.",
    ),
    Mutant(
        "rank 0 is nobody",
        "02.1",
        "if send is not None and to is not None:",
        "if send is not None and to:",
        "0 is a rank, and false. The classic of every language in which a number is a condition.",
    ),
    Mutant(
        "to the left",
        "02.2",
        "send, (r + 1) % n, recv, (r - 1) % n",
        "send, (r - 1) % n, recv, (r + 1) % n",
        "On two ranks left and right are the same, so a test on two ranks cannot see it. Tests of "
        "courses often use two: stanford-cs336/assignment2-systems does.",
    ),
    Mutant(
        "the ring is open",
        "02.2",
        "recv, (r - 1) % n",
        "recv, r - 1",
        "Left of rank 0 is no rank -1. Here it is refused in a sentence. In Open MPI -1 stands for "
        "any source: the message is taken from whoever comes first.",
    ),
    Mutant(
        "the round trip is taken for one way",
        "02.3",
        "(now() - start) / 2",
        "(now() - start)",
        "ROCm/rccl#804: a new tool reported the round trip as the latency, until a reviewer asked. "
        "Every prediction is then off by two.",
    ),
    Mutant(
        "the first turn counts",
        "02.3",
        "if turn > 0:",
        "if turn >= 0:",
        "In the first turn memory is touched for the first time and connections are made. That is "
        "why nccl-tests and osu_latency run a few turns before they look at the clock.",
    ),
    Mutant(
        "the longest turn counts",
        "02.3",
        "min(best, ",
        "max(best if best < math.inf else 0, ",
        "Measures whatever else the machine had to do.",
    ),
    Mutant(
        "long messages drown the short ones",
        "02.4",
        "np.stack([1 / t, n / t], axis=1), np.ones(len(t))",
        "np.stack([np.ones(len(t)), n], axis=1), t",
        "Plain least squares looks at errors in seconds: ten percent of 64 MiB is more than all "
        "latencies together, and the latency comes out as anything, often below zero.",
    ),
    Mutant(
        "the knee upside down",
        "02.5",
        "link.latency * link.bandwidth",
        "link.latency / link.bandwidth",
        "Seconds times bytes per second are bytes; seconds over bytes per second are nothing that "
        "has a name. jax-ml/scaling-book#73 is one of many reports of units that do not fit.",
    ),
]
