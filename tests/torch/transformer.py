# SPDX-License-Identifier: Apache-2.0
"""A small transformer that is moved to the device, caches keys and values, trains a step, and runs out of memory.

It runs on PyTorch as it is, without knowing of any tracer. After each step it prints a line of JSON: the step's name,
PyTorch's own figures, and the ledger of the stand-in driver; it goes on when it is given a line. Comments `site: …`
mark the lines that tests look for. Every large tensor has a size that PyTorch's allocators ask for as it is: a multiple
of 2 MiB from 10 MiB on.
"""

import ctypes
import gc
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

WIDTH = 2048
HEADS = 16
WORDS = 8192
SEQUENCES = 8
TOKENS = 256
PAGE = (2, 1024, 2048)
PAGES = 4
SCRATCH = 40 << 20
"""Numbers of four bytes: more than any part that PyTorch could have kept from before."""

TOO_MANY = 15 << 27
"""Numbers of four bytes, 7.5 GiB of the device's 8: more than it has left."""


class Linear(nn.Module):
    """PyTorch's own spends a second on values, which nothing here depends on."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(values, self.weight)


class Gate(torch.autograd.Function):
    """Changes nothing, and needs a lot of work space on the way back."""

    @staticmethod
    def forward(_context: Any, values: torch.Tensor) -> torch.Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        torch.empty(SCRATCH, device="cuda")  # site: gate
        return gradient


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = Linear(WIDTH, 3 * WIDTH)
        self.output = Linear(WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        parts = self.query_key_value(values).view(SEQUENCES, TOKENS, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        result: torch.Tensor = self.output(mixed.transpose(1, 2).reshape(values.shape))
        return result


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = Linear(WIDTH, 4 * WIDTH)
        self.down = Linear(4 * WIDTH, WIDTH)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(nn.functional.gelu(self.up(values)))  # site: feed forward
        return result


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(WORDS, WIDTH))
        self.attention = Attention()
        self.feed_forward = FeedForward()

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        values = Gate.apply(nn.functional.embedding(numbers, self.words))
        values = values + self.attention(values)
        return values + self.feed_forward(values)  # site: block


class KeyValueCache:
    """Pages for the keys and values of the tokens in flight."""

    def __init__(self) -> None:
        self.pages = [self.page() for _ in range(PAGES)]

    def page(self) -> torch.Tensor:
        return torch.empty(PAGE, device="cuda")  # site: cache


class Driver:
    """The stand-in's ledger."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._library.standin_ledger_json.restype = ctypes.c_size_t

    def ledger(self) -> Any:
        buffer = ctypes.create_string_buffer(1 << 16)
        self._library.standin_ledger_json(buffer, ctypes.c_size_t(len(buffer)))
        return json.loads(buffer.value)


class Run:
    """The steps; each leaves something in use, and the last ones give it back."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def weights(self) -> None:
        model = Transformer()
        self.held["model"] = model.to("cuda")  # site: weights

    def cache(self) -> None:
        self.held["cache"] = KeyValueCache()

    def forward(self) -> None:
        numbers = torch.zeros(SEQUENCES, TOKENS, dtype=torch.long, device="cuda")
        self.held["result"] = self.held["model"](numbers)  # site: forward

    def backward(self) -> None:
        self.held.pop("result").sum().backward()

    def pinned(self) -> None:
        self.held["pinned"] = torch.empty(16 << 20, dtype=torch.uint8, pin_memory=True)  # site: pinned

    def out_of_memory(self) -> None:
        try:
            torch.empty(TOO_MANY, device="cuda")  # site: out of memory
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            return
        raise AssertionError("the device had room")

    def empty(self) -> None:
        del self.held["model"], self.held["cache"]
        gc.collect()
        torch.cuda.empty_cache()


def main() -> None:
    driver = Driver()
    run = Run()
    steps: list[Callable[[], None]] = [
        run.weights,
        run.cache,
        run.forward,
        run.backward,
        run.pinned,
        run.out_of_memory,
        run.empty,
    ]
    for step in steps:
        step()
        figures = {
            "step": step.__name__,
            "reserved": torch.cuda.memory_reserved(),
            "allocated": torch.cuda.memory_allocated(),
            "thread": threading.get_native_id(),
            "ledger": driver.ledger(),
        }
        print(json.dumps(figures), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
