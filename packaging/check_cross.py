"""Examines wheels for Windows and macOS by what their modules say of themselves; nothing of them is run.

    python packaging/check_cross.py dist/samebits-….whl ...

Raises, or exits non-zero, at the first thing that does not hold.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import lief
from check_wheel import BadWheel, check_contents
from cross_build import TARGETS, Target, stable_abi

lief.logging.disable()  # what it says of symbols without names

WINDOWS_SYSTEM = ("kernel32.dll", "ntdll.dll", "api-ms-win-crt-")  # of every Windows since 10
MACOS_SYSTEM = ("/usr/lib/libSystem.B.dylib",)
MACOS_OLDEST = [11, 0, 0]
AD_HOC = 0x2  # CS_ADHOC, in the flags of a code directory
CODE_DIRECTORY = b"\xfa\xde\x0c\x02"


def check_cross_wheel(wheel: Path) -> None:
    """Raise BadWheel unless the wheel holds the package and modules that its platform's loader would take."""
    check_contents(wheel)
    (target,) = [t for t in TARGETS.values() if wheel.name.endswith(f"-{t.platform}.whl")]
    with zipfile.ZipFile(wheel) as archive:
        modules = {name: archive.read(name) for name in archive.namelist() if name.endswith(target.suffix)}
    if sorted(Path(name).name.partition(".")[0] for name in modules) != ["_encoding", "_native"]:
        raise BadWheel(f"{wheel.name} has the modules {', '.join(sorted(modules)) or 'of none'}")
    for name, data in modules.items():
        (check_pe if target.is_windows else check_mach_o)(name, data, target)
    print(f"  examined {', '.join(sorted(modules))}; never loaded: there is no {target.platform} here")


def require(holds: bool, name: str, fault: str) -> None:
    if not holds:
        raise BadWheel(f"{name} {fault}")


def check_pe(name: str, data: bytes, target: Target) -> None:
    """Raise BadWheel unless the DLL is for x86-64, exports PyInit, and imports the system and the stable ABI alone."""
    pe = lief.PE.parse(list(data))
    require(pe is not None, name, "is no PE file")
    require(pe.header.machine == lief.PE.Header.MACHINE_TYPES.AMD64, name, f"is for {pe.header.machine}")
    require(init_of(name) in {e.name for e in pe.get_export().entries}, name, "exports no PyInit")
    for library in pe.imports:
        lowered = library.name.lower()
        if lowered == "python3.dll":
            outside = {entry.name for entry in library.entries} - stable_abi()
            require(not outside, name, f"imports {', '.join(sorted(outside)[:5])}, outside the stable ABI")
        else:
            require(lowered.startswith(WINDOWS_SYSTEM), name, f"needs {library.name}")


def check_mach_o(name: str, data: bytes, target: Target) -> None:
    """Raise BadWheel unless the library fits the architecture and macOS 11, is signed where it must be, and leaves
    nothing but the stable ABI to be found in the process that loads it."""
    fat = lief.MachO.parse(list(data))
    require(fat is not None and fat.size == 1, name, "is no Mach-O file for one architecture")
    library = fat.at(0)
    types = lief.MachO.Header.CPU_TYPE
    wanted = types.ARM64 if target.architecture == "aarch64" else types.X86_64
    require(library.header.cpu_type == wanted, name, f"is for {library.header.cpu_type}")
    needed = [each.name for each in library.libraries if each.command != lief.MachO.LoadCommand.TYPE.ID_DYLIB]
    require(set(needed) <= set(MACOS_SYSTEM), name, f"needs {', '.join(needed)}")
    oldest = library.build_version.minos
    require(list(oldest) <= MACOS_OLDEST, name, f"needs macOS {oldest}")
    exported = {symbol.name for symbol in library.exported_symbols}
    require(f"_{init_of(name)}" in exported, name, "exports no PyInit")
    pythons = {symbol.name[1:] for symbol in library.imported_symbols if symbol.name.startswith(("_Py", "__Py"))}
    outside = pythons - stable_abi()
    require(not outside, name, f"imports {', '.join(sorted(outside)[:5])}, outside the stable ABI")
    if target.architecture == "aarch64":  # whose kernel runs nothing unsigned
        require(library.has_code_signature, name, "is not signed")
        signature = bytes(library.code_signature.content)
        at = signature.find(CODE_DIRECTORY)
        flags = int.from_bytes(signature[at + 12 : at + 16], "big") if at >= 0 else 0
        require(bool(flags & AD_HOC), name, "has no ad-hoc signature")


def init_of(name: str) -> str:
    return f"PyInit_{Path(name).name.partition('.')[0]}"


if __name__ == "__main__":
    for path in sys.argv[1:]:
        check_cross_wheel(Path(path))
