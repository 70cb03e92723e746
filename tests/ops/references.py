"""The operations by the plainest route: loops and textbook formulas, float64, nothing shared."""

import math

import numpy as np


def attention(q, k, v, q_pos, k_pos):
    """One query, one head, one key at a time. q (B, T, G, R, H)."""
    B, T, G, R, H = q.shape
    o, lse = np.zeros(q.shape), np.full((B, T, G, R), -np.inf)
    for b, t, g, r in np.ndindex(B, T, G, R):
        seen = [s for s in range(len(k_pos)) if k_pos[s] <= q_pos[t]]
        if not seen:
            continue
        scores = np.array([q[b, t, g, r] @ k[b, s, g] / math.sqrt(H) for s in seen])
        lse[b, t, g, r] = math.log(sum(math.exp(x) for x in scores))
        for s, score in zip(seen, scores, strict=True):
            o[b, t, g, r] += math.exp(score - lse[b, t, g, r]) * v[b, s, g]
    return o, lse


def rms_norm(x, weight, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def rope(x, positions, base):
    """Pairs (i, i + H/2) as complex numbers, times exp(i angle). x (..., T, N, H)."""
    half = x.shape[-1] // 2
    angle = np.outer(positions, base ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)[:, None]
    return np.concatenate([turned.real, turned.imag], -1)


def swiglu(gate, up):
    return gate / (1 + np.exp(-gate)) * up


def cross_entropy(logits, labels):
    """Token by token."""
    total = 0.0
    for row, label in zip(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), strict=True):
        if label >= 0:
            total += math.log(sum(math.exp(x) for x in row)) - row[label]
    return total
