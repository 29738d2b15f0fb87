"""kubeconform with the schemas of the folder kubernetes: does Kubernetes take these objects?"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ..waiting import PROCESS

KUBECONFORM = shutil.which("kubeconform")
SCHEMAS = Path(__file__).parent / "kubernetes"


def conforms(text: str) -> subprocess.CompletedProcess[str]:
    """What it says about the objects of a YAML text; its code is 0 where all are valid."""
    assert KUBECONFORM is not None
    place = f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    words = [KUBECONFORM, "-summary", "-skip", "ServiceMonitor", "-schema-location", place, "-"]
    return subprocess.run(
        words, input=text, capture_output=True, text=True, timeout=PROCESS, check=False
    )
