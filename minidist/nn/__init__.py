"""Parameters and layers with hand-written backward passes.

Read in this order: parameter, at, layer (the protocol), linear, elementwise, mlp, attention, loss,
decoder.
"""

from minidist.nn.at import At
from minidist.nn.attention import Attention, AttentionObject, LocalAttention
from minidist.nn.decoder import DecoderConfig, build_decoder
from minidist.nn.elementwise import Dropout, RMSNorm
from minidist.nn.layer import Chain, Later, Layer, Residual
from minidist.nn.linear import Bias, Embedding, Linear
from minidist.nn.loss import CrossEntropy, Labels
from minidist.nn.mlp import SwiGLU
from minidist.nn.parameter import DATA, Box, Init, Parameter, Shard, allocate
from minidist.nn.recompute import RECOMPUTE, Recompute, segments

__all__ = [
    "DATA",
    "RECOMPUTE",
    "At",
    "Attention",
    "AttentionObject",
    "Bias",
    "Box",
    "Chain",
    "CrossEntropy",
    "DecoderConfig",
    "Dropout",
    "Embedding",
    "Init",
    "Labels",
    "Later",
    "Layer",
    "Linear",
    "LocalAttention",
    "Parameter",
    "RMSNorm",
    "Recompute",
    "Residual",
    "Shard",
    "SwiGLU",
    "allocate",
    "build_decoder",
    "segments",
]
