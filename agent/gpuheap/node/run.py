# SPDX-License-Identifier: Apache-2.0
"""Puts the service together: tracer, pusher, metrics server, loop; and takes it apart again in time."""

import threading
from typing import Final

from gpuheap.node.log import LOGGER, line
from gpuheap.node.metrics import ReadingCollector, registry
from gpuheap.node.pusher import Pusher
from gpuheap.node.service import Service
from gpuheap.node.settings import AgentSettings
from gpuheap.node.web import MetricsServer
from gpuheap.tracer import Tracer, TracerOptions

LAST_PUSH_SECONDS: Final = 8.0
"""For the pushes after SIGTERM; with the detaching of the probes well below Kubernetes' 30 s of grace."""


def run(settings: AgentSettings, stop: threading.Event) -> None:
    """Until `stop` is set. Raises `SettingsError` for a metrics address that is taken, `TracerError`."""
    with Tracer(TracerOptions(live_allocations=settings.live_allocations)) as tracer:
        pusher = Pusher(settings.pyroscope_url) if settings.pyroscope_url else None
        collector = ReadingCollector(settings.node, pusher.outcomes if pusher else dict)
        service = Service(settings, tracer, show=collector.show, sink=pusher)
        with MetricsServer(
            settings.metrics_host,
            settings.metrics_port,
            metrics=registry(collector),
            healthy=service.healthy,
            ready=service.ready,
        ) as server:
            LOGGER.info(
                line(
                    "started",
                    node=settings.node,
                    cluster=settings.cluster,
                    interval_seconds=settings.interval_seconds,
                    push=settings.pyroscope_url or "off",
                    metrics=f"{settings.metrics_host}:{server.port}",
                )
            )
            service.run(stop)
            LOGGER.info(line("stopping"))
            if pusher is not None:
                pusher.close(LAST_PUSH_SECONDS)
    LOGGER.info(line("stopped"))
