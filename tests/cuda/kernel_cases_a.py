"""Cases of the kernels that any training needs: sums, buckets, reductions, the optimiser."""

from tests.cuda.cases.adamw import adamw_cases
from tests.cuda.cases.elementwise import elementwise_cases
from tests.cuda.cases.pack import pack_cases
from tests.cuda.cases.reduce import reduce_cases

CASES = [*elementwise_cases(), *pack_cases(), *reduce_cases(), *adamw_cases()]
