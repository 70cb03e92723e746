"""Cases of the kernels of a model, one file of tests/cuda/cases for each file of kernels."""

from tests.cuda.cases.attention import attention_cases
from tests.cuda.cases.cross_entropy import cross_entropy_cases
from tests.cuda.cases.dropout import dropout_cases
from tests.cuda.cases.rms_norm import rms_norm_cases
from tests.cuda.cases.rope import rope_cases
from tests.cuda.cases.swiglu import swiglu_cases

CASES = [
    *rms_norm_cases(),
    *cross_entropy_cases(),
    *swiglu_cases(),
    *rope_cases(),
    *dropout_cases(),
    *attention_cases(),
]
