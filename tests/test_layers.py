"""layers.py must find each kind of violation: one small tree for each."""

import sys
import tempfile
from pathlib import Path

import layers

HOST = "const oriel_fabric oriel_fabric_host = {0};\n"
SPAN = "const oriel_device_fabric oriel_device_span = {0};\n"

MADE = "int made_by_base(int x, int y)\n{\n    return x;\n}\nconst int table_of_base[] = {1};\n"

# file, its content, part of the sentence it must cause ("" when it is fine)
TRIALS = [
    ("src/core/world/a.c", '#include "base/log.h"\n#include "oriel/oriel.h"\n', ""),
    ("src/core/world/a.c", '#include "core/heap/heap.h"\n#include "core/world/b.h"\n', ""),
    ("src/core/world/a.c", '#include "ops/reduce/reduce.h"\n', "does not see ops/reduce"),
    ("src/core/world/a.c", '#include "core/device/device.h"\n', "does not see core/device"),
    ("src/core/store/a.h", '#include "fabric/fabric.h"\n', "does not see fabric"),
    ("src/fabric/cuda/a.c", '#include "fabric/nccl/library.h"\n', "does not see fabric/nccl"),
    ("src/base/a.h", '#  include "core/world/comm.h"\n', "base does not see core/world"),
    ("src/core/world/a.c", '#include "elsewhere.h"\n', "is in no room"),
    ("src/core/world/a.c", '/* #include "ops/reduce/reduce.h" */\n', ""),
    ("src/core/store/a.h", "int made_by_base(int x,\n                 int y);\n", "base defines"),
    ("src/core/store/a.c", "extern const int table_of_base[];\n", "declares table_of_base"),
    ("src/core/store/a.c", "void f(void)\n{\n    made_by_base(1, 2);\n}\n", ""),
    ("src/base/a.h", "int made_by_base(int x, int y);\nextern const int table_of_base[];\n", ""),
    ("tools/a.c", "int made_by_base(int x, int y);\n", "base defines"),
    ("src/core/world/a.c", "int f(struct XLA_FFI_Error *e);\n", "XLA_FFI_Error"),
    ("src/core/world/a.c", "/* as XLA_FFI_Error does */\n", ""),
    ("src/ffi/a.c", "int f(struct XLA_FFI_Error *e);\n", ""),
    ("include/oriel/a.h", "#include <xla/ffi/api/c_api.h>\n", "xla/ffi"),
    (
        "src/core/world/a.c",
        "void f(void) { oriel_fabric_host.probe(); }\n",
        "names the fabric oriel_fabric_host",
    ),
    ("src/fabric/fabrics.c", "void *p = &oriel_fabric_host;\n", ""),
    (
        "src/fabric/other.c",
        'const oriel_fabric oriel_fabric_other = {0};\n#include "fabric/host.h"\n',
        "another fabric",
    ),
    ("src/fabric/other.c", "void *p = &oriel_fabric_host;\n", "names the fabric oriel_fabric_host"),
    ("src/core/start/fabrics.c", "void *p = &oriel_device_span;\n", ""),
    ("src/core/nccl/b.h", "extern const oriel_device_fabric oriel_device_span;\n", ""),
    ("src/core/nccl/b.c", "void *p = &oriel_device_span;\n", "names the fabric oriel_device_span"),
    ("src/ops/cuda/a.c", "void *p = &oriel_device_span;\n", "names the fabric oriel_device_span"),
    ("src/core/device/a.c", '#include "core/memory/arena.h"\n', "does not see core/memory"),
    ("tools/a.c", '#include "core/store/store.h"\n#include "a.h"\n', ""),
    ("tools/a.c", '#include "ops/reduce/reduce.h"\n', "does not see"),
    ("tools/a.c", '#include "fabric/fabric.h"\n', "does not see"),
    ("python/oriel/a.py", "lib.oriel_version()\n", ""),
    ("python/oriel/a.py", "lib.oriel_fail(1)\n", "does not export"),
]


def try_one(name, content):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = {
            "src/fabric/host.c": HOST,
            "src/core/nccl/span.c": SPAN,
            "src/base/made.c": MADE,
            "src/oriel.map": "oriel_version;\n",
            "tools/a.h": "",
            "include/x.h": "",
            "python/x.py": "",
            name: content,
        }
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return [text for _, text in layers.violations(root)]


def main():
    failed = False
    for name, content, wanted in TRIALS:
        found = try_one(name, content)
        if (wanted and not any(wanted in text for text in found)) or (not wanted and found):
            print(f"{name}: {content!r} gave {found}, wanted {wanted!r}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
