# The extension that cffi builds from csrc/. Its types live in C: Any stays behind this file.
from typing import Any

ffi: Any
lib: Any
