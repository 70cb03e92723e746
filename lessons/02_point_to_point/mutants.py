"""Wrong versions of the solutions, a change each, and who met it. check.py rejects them all.

    ./run check 02 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "send, then receive",
        "02.1",
        """\
    if recv is not None and source is not None:
        requests.append(self.irecv(recv, source, tag))
    if send is not None and to is not None:
        requests.append(self.isend(send, to, tag))
""",
        """\
    if send is not None and to is not None:
        self.send(send, to, tag)
    if recv is not None and source is not None:
        self.recv(recv, source, tag)
""",
        "NVIDIA/nccl#1279 and firemodels/fds#1720: both sides send first. It works as long as the "
        "library buffers the message, so for small ones, and hangs for large ones.",
    ),
    Mutant(
        "receive, then send",
        "02.1",
        "requests.append(self.irecv(recv, source, tag))",
        "self.recv(recv, source, tag)",
        "Both sides want to hear first. This one hangs at every size, so it is found on the first "
        "day; the other way round it is found by a user.",
    ),
    Mutant(
        "the send is not waited for",
        "02.1",
        "self.wait_all(requests)",
        "self.wait_all(requests[:1])",
        "The caller writes the next step's numbers into the array while the last step's are still "
        "being sent: the other rank gets a mixture of both, now and then.",
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
        "Left of rank 0 is no rank -1. Here it is refused in a sentence; in MPI -1 may be a "
        "wildcard, and then a message from anybody is taken.",
    ),
    Mutant(
        "the round trip is taken for one way",
        "02.3",
        "(now() - start) / 2",
        "(now() - start)",
        "Twice the latency and half the bandwidth, and every prediction is off by two: factors of "
        "two are what jax-ml/scaling-book#85 and #128 had to correct, too.",
    ),
    Mutant(
        "both serve",
        "02.3",
        "comm.recv(y, a)\n            comm.send(y, a)",
        "comm.send(y, a)\n            comm.recv(y, a)",
        "NVIDIA/nccl#1279 again, and with buffers worse than a hang: the two messages cross, "
        "and the time comes out at half of what it is.",
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
]
