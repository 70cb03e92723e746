"""Wrong versions of the solutions, one changed line each, and who met it. check.py rejects them.

    ./run check 00 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

OFFSET = "i * small + min(i, extra)"

MUTANTS = [
    Mutant(
        "the rest is nobody's",
        "00.1",
        OFFSET,
        "i * small",
        "hw-native-sys/pypto#1942: a ring all-reduce cut the array into n // N elements a rank, "
        "so that the tail would have been dropped; a review led to such sizes being refused. Right "
        "whenever N divides n, and that is what most tests try.",
    ),
    Mutant(
        "the last rank takes the rest",
        "00.1",
        OFFSET,
        "(n if i == parts else i * small)",
        "Every element has an owner, but 7 elements on 4 ranks are cut 1, 1, 1, 4: three ranks "
        "wait for the fourth. And whoever cuts elsewhere by the other rule looks for them in vain.",
    ),
    Mutant(
        "pieces of equal length, rounded up",
        "00.1",
        OFFSET,
        "min(i * -(-n // parts), n)",
        "ByteDance-Seed/VeOmni#794: one code base cut 10 into 3, 3, 3, 1 in one place and into 3, "
        "3, 2, 2 in another. Each rule is fine; two rules in one program are not.",
    ),
    Mutant(
        "padding is not taken away again",
        "00.1",
        OFFSET,
        "i * -(-n // parts)",
        "pytorch/pytorch#103306: 5 rows were scattered over 4 ranks and gathered again, and 8 rows "
        "came back.",
    ),
    Mutant(
        "ranks without an element are forgotten",
        "00.1",
        "range(parts + 1)",
        "range(min(n, parts) + 1)",
        "pytorch/pytorch#108869: 6 elements, saved by 4 ranks as 2, 2, 2, 0, could not be loaded, "
        "since the loader left the empty piece out.",
    ),
    Mutant(
        "the end is missing",
        "00.1",
        "range(parts + 1)",
        "range(parts)",
        "Offsets are fences, pieces are fields: one more fence than fields.",
    ),
    Mutant(
        "every rank does everything",
        "00.2",
        "cut[comm.rank],",
        "cut[0],",
        "The result looks right, only nothing is faster with more ranks.",
    ),
    Mutant(
        "every rank has n // size",
        "00.2",
        "cut[comm.rank + 1]",
        "cut[comm.rank] + n // comm.size",
        "PrimeIntellect-ai/prime-diloco#44 is one of many: the tail is dropped where a piece is "
        "used, and not where it is cut.",
    ),
    Mutant(
        "another number of ranks",
        "00.2",
        "bounds(n, comm.size)",
        "bounds(n, comm.size + 1)",
        "facebookresearch/fairscale#907: the pieces were made for the ranks of the world, and used "
        "by the fewer ranks of a group.",
    ),
    Mutant(
        "everybody is rank 0",
        "00.3",
        "Row(comm.rank,",
        "Row(0,",
        "What the table shows if mpirun belongs to one MPI and the library to another: each "
        "process believes that it is alone. `./run doctor` compares the two.",
    ),
    Mutant(
        "a rank knows only itself",
        "00.3",
        "comm.gather_objects(mine)",
        "[mine]",
        "Right on one rank, which is where most programs are tried first.",
    ),
    Mutant(
        "the device of another",
        "00.3",
        "os.getpid(), device)",
        "os.getpid(), comm.bcast_object(device))",
        "All rows name the device of rank 0, and nobody sees that two ranks share one GPU.",
    ),
]
