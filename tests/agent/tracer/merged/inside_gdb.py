# SPDX-License-Identifier: Apache-2.0
"""Run by GDB: at each call of the driver, the native frames, and how many Python functions each evaluation executes.

What it knows of CPython it has from the interpreter's debug information, 3.8 to 3.13. From 3.11 on an evaluation keeps
something on its own C stack, by which it can be told: `_PyCFrame` in 3.11, later the frame that ends its functions.
Appends a line of JSON for each call to the file that $ANSWERS names.
"""

import json
import os
from pathlib import Path

import gdb

INLINED, TAIL_CALL = 2, 3
ON_C_STACK = 3  # FRAME_OWNED_BY_CSTACK


def native_frames(frame):
    """From the driver's caller outwards."""
    program = gdb.current_progspace().filename
    while frame is not None:
        where = frame.find_sal()
        if frame.type() not in (INLINED, TAIL_CALL):
            yield {
                "library": gdb.solib_name(frame.pc()) or program,
                "function": frame.name() or "?",
                "has_debug_information": frame.function() is not None,
                "source": where.symtab.fullname() if where.symtab is not None else "",
                "line": where.line,
                "stack": int(frame.read_register("rsp")) & (1 << 64) - 1,
            }
        frame = frame.older()


def thread_state():
    """Of this thread; None where there is no Python, or the thread has none."""
    try:
        interpreter = gdb.parse_and_eval("_PyRuntime")["interpreters"]["head"]
    except gdb.error:
        return None
    own = int(gdb.parse_and_eval("$fs_base"))
    while interpreter:
        names = [field.name for field in interpreter.dereference().type.fields()]
        state = interpreter["tstate_head"] if "tstate_head" in names else interpreter["threads"]["head"]
        while state:
            if int(state["thread_id"]) == own:
                return state
            state = state["next"]
        interpreter = interpreter["next"]
    return None


def evaluations(state):
    """From the innermost outwards: how many functions, and a place on the C stack that is the evaluation's."""
    names = [field.name for field in state.dereference().type.fields()]
    if "frame" in names:  # to 3.10
        frame = state["frame"]
        while frame:
            yield 1, None
            frame = frame["f_back"]
        return
    frame = state["cframe"]["current_frame"] if "cframe" in names else state["current_frame"]
    if "is_entry" in [field.name for field in frame.dereference().type.fields()]:  # 3.11
        yield from evaluations_3_11(state["cframe"])
        return
    count = 0
    while frame:
        if int(frame["owner"]) == ON_C_STACK:
            yield count, int(frame)
            count = 0
        else:
            count += 1
        frame = frame["previous"]


def evaluations_3_11(kept):
    while kept:
        frame, count = kept["current_frame"], 0
        while frame:
            count += 1
            if frame["is_entry"]:
                break
            frame = frame["previous"]
        if count:
            yield count, int(kept)
        kept = kept["previous"]


class Call(gdb.Breakpoint):
    def stop(self):
        frame = gdb.newest_frame()
        state = thread_state()
        seen = {
            "size": int(frame.read_var("bytes")),
            "native": list(native_frames(frame.older())),
            "evaluations": list(evaluations(state)) if state is not None else [],
        }
        with Path(os.environ["ANSWERS"]).open("a") as answers:
            answers.write(json.dumps(seen) + "\n")
        return False


for setting in (
    "confirm off",
    "debuginfod enabled off",
    "breakpoint pending on",
    "print thread-events off",
    "backtrace past-main on",
    "backtrace past-entry on",
):
    gdb.execute(f"set {setting}")
Call("cuMemAlloc_v2")
gdb.execute("run")
