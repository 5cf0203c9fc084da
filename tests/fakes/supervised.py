"""A supervisor over small stand-in processes: `python -m tests.fakes.supervised HOME PLAN.json`.

The plan lists processes: {name, code (Python), port, path? (probe: GET /ready), after?, stage?}; a process
named `valkey` is the real embedded one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headrace_cli.stack import valkey
from headrace_cli.stack.announce import JsonAnnouncer
from headrace_cli.stack.probes import HttpProbe
from headrace_cli.stack.specs import ProcessSpec
from headrace_cli.stack.state import held
from headrace_cli.stack.supervisor import Pace, Supervisor

SERVER = """
import http.server, signal, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *_):
        pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("serving", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Ready).serve_forever()
"""
"""A child that is ready at once and stops on SIGTERM."""


def spec(home: Path, row: dict) -> ProcessSpec:
    if row["name"] == "valkey":
        return valkey.spec(home, row["port"], dict(os.environ))
    return ProcessSpec(
        name=row["name"],
        argv=(sys.executable, "-c", f"PORT = {row['port']}\n{row.get('code', SERVER)}"),
        env=dict(os.environ),
        probe=HttpProbe(f"http://127.0.0.1:{row['port']}{row.get('path', '/ready')}"),
        url=f"http://127.0.0.1:{row['port']}",
        after=tuple(row.get("after", ())),
        stop_stage=row.get("stage", 0),
    )


def main() -> None:
    home, plan = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    pace = Pace(
        ready_within=plan.get("ready_within", 60),
        watch_every=0.5,
        first_backoff=plan.get("first_backoff", 0.2),
        stop_grace=tuple(plan.get("stop_grace", (5, 5, 5))),
    )
    with held(home):
        Supervisor([spec(home, row) for row in plan["processes"]], home, JsonAnnouncer(), {}, pace).run()


if __name__ == "__main__":
    main()
