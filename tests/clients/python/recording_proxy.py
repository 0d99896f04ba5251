"""A proxy before the API server that notes in which form everybody speaks.

Clients reach it without TLS and without credentials; it calls the server with those
of a kubeconfig. What streams (watches, logs) is passed on as it comes.
"""

import base64
import http.client
import http.server
import json
import os
import ssl
import subprocess
import tempfile
import threading
import urllib.parse

PROTOBUF = "application/vnd.kubernetes.protobuf"
STREAM = PROTOBUF + ";stream=watch"
# Of one connection alone, and so not passed on.
HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection"}


class Call:
    """What was asked for and in which form, and what came."""

    def __init__(self, method, target, headers):
        url = urllib.parse.urlsplit(target)
        self.method = method
        self.path = url.path
        self.query = urllib.parse.parse_qs(url.query)
        self.sent = headers.get("content-type", "")
        self.accepted = headers.get("accept", "")
        self.agent = headers.get("user-agent", "")
        self.status = 0
        self.answered = ""

    @property
    def watches(self):
        return self.query.get("watch", [""])[0] in ("1", "true")

    @property
    def resource(self):
        """The resource, with its subresource: `pods`, `deployments/scale`."""
        parts = self.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] not in ("status", "finalize"):
            parts = parts[2:]
        return "/".join(parts[:1] + parts[2:])

    def __repr__(self):
        watch = " (watch)" if self.watches else ""
        return f"{self.method} {self.path}{watch} [{self.sent}] -> {self.status} [{self.answered}]"


class RecordingProxy:
    """Listens on a port of its own until the script ends."""

    def __init__(self, kubectl, kubeconfig):
        said = subprocess.run(
            [kubectl, "config", "view", "--raw", "--minify", "-o", "json"],
            env={**os.environ, "KUBECONFIG": kubeconfig},
            check=True,
            capture_output=True,
        )
        config = json.loads(said.stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = urllib.parse.urlsplit(cluster["server"])
        self.context = ssl.create_default_context(cadata=material(cluster, "certificate-authority"))
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for name in ("client-certificate", "client-key"):
                files.append(os.path.join(folder, name))
                with open(files[-1], "w") as file:
                    file.write(material(user, name))
            self.context.load_cert_chain(*files)
        self.lock = threading.Lock()
        self.noted = []
        proxy = self

        class Handler(Forwarder):
            pass

        Handler.proxy = proxy
        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.listener.server_port}"
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def kubeconfig(self, path):
        """Writes a kubeconfig with which clients come through this proxy."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        with open(path, "w") as file:
            json.dump(config, file)
        return path

    def note(self, call):
        with self.lock:
            self.noted.append(call)

    def calls(self, wanted=lambda call: True):
        """Returns the calls so far, those that are wanted."""
        with self.lock:
            return [call for call in self.noted if wanted(call)]


def material(holder, name):
    """Returns the text of a certificate or key, given whole or as a file."""
    if f"{name}-data" in holder:
        return base64.b64decode(holder[f"{name}-data"]).decode()
    with open(holder[name]) as file:
        return file.read()


class Forwarder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy = None

    def forward(self):
        proxy = self.proxy
        call = Call(self.command, self.path, self.headers)
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else None
        headers = {n: v for n, v in self.headers.items() if n.lower() not in HOP}
        headers["Host"] = proxy.server.netloc
        server = http.client.HTTPSConnection(
            proxy.server.hostname, proxy.server.port, context=proxy.context
        )
        try:
            server.request(self.command, self.path, body=body, headers=headers)
            answer = server.getresponse()
            call.status = answer.status
            call.answered = answer.headers.get("content-type", "")
            proxy.note(call)
            self.answer(answer)
        except (BrokenPipeError, ConnectionResetError):
            # Whoever asked has gone.
            self.close_connection = True
        finally:
            server.close()

    def answer(self, answer):
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in HOP | {"content-length"}:
                self.send_header(name, value)
        empty = answer.status in (204, 304) or self.command == "HEAD"
        if not empty:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while not empty:
            piece = answer.read1(1 << 16)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if not piece:
                return

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = forward

    def log_message(self, *_):
        pass
