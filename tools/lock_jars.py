"""Write `kafka-jars.lock` anew: `python tools/lock_jars.py` (resolves, fetches, hashes)."""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from jgo.maven import Artifact, MavenContext

from eden_memory.local.local_kafka import LOCK_FILE, Jar

KAFKA = "4.3.1"
LOG4J = "2.25.2"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA}",
    # Named although kafka_2.13 brings it: log4j's parent would pin an older one.
    f"org.apache.kafka:kafka-clients:{KAFKA}",
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J}",
    f"org.apache.logging.log4j:log4j-core:{LOG4J}",
)


def main() -> None:
    """Resolve the coordinates and everything that they need at run time."""
    with TemporaryDirectory() as cache:
        context = MavenContext(repo_cache=Path(cache))
        asked = [context.create_dependency(coordinate) for coordinate in COORDINATES]
        inputs, transitive = context.resolver.resolve(asked)
        needed = [dependency for dependency in transitive if dependency.scope in ("compile", "runtime")]
        jars = {_lock(dependency.artifact) for dependency in [*inputs, *needed]}
    lines = sorted(jar.line for jar in jars)
    LOCK_FILE.write_text("\n".join(["# group:artifact:version sha256 bytes", *lines, ""]))


def _lock(artifact: Artifact) -> Jar:
    content = artifact.resolve().read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return Jar(artifact.groupId, artifact.artifactId, artifact.version, sha256, len(content))


if __name__ == "__main__":
    main()
