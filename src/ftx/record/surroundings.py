"""What must be the same around two runs for one to stand for the other: ftx's own code, versions, the device."""

from collections.abc import Mapping
from dataclasses import dataclass

from ftx.record.provenance import LOADED_SOURCES, package_versions
from ftx.record.run_record import RunRecord

VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate")


@dataclass(frozen=True)
class Surroundings:
    """What must be the same for a finished run to stand for one that would be trained now."""

    ftx_sources: str | None
    versions: Mapping[str, str | None]
    device: tuple[str | None, str | None]
    """Accelerator and device name."""

    @classmethod
    def here(cls, accelerator: str | None, device_name: str | None) -> "Surroundings":
        """Those of this process, on a device of that name."""
        return cls(LOADED_SOURCES, package_versions(VERSIONS), (accelerator, device_name))

    @classmethod
    def of(cls, record: RunRecord) -> "Surroundings":
        """Those of a recorded run."""
        return cls(
            record.code.get("ftx", {}).get("sources"),
            {name: record.versions.get(name) for name in VERSIONS},
            (record.hardware["accelerator"], record.hardware["device_name"]),
        )

    def differences(self, other: "Surroundings") -> list[str]:
        """What differs, in words: `torch 2.12 (here 2.13)`."""
        found = [] if self.ftx_sources == other.ftx_sources else ["ftx's own code"]
        found += [
            f"{name} {other.versions.get(name)} (here {version})"
            for name, version in self.versions.items()
            if other.versions.get(name) != version
        ]
        if self.device != other.device:
            found.append(f"device {other.device[1] or other.device[0]}")
        return found
