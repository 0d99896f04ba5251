//! Pages that members show, such as their metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an HTTP answer may take.
const HTTP_PATIENCE: Duration = Duration::from_secs(10);

/// Gets a page over HTTP/1.0.
pub(crate) fn http_get(url: &str, path: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HTTP_PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns one of a member's metrics, as Prometheus would read it.
pub(crate) fn metric(url: &str, name: &str) -> f64 {
    let text = http_get(url, "/metrics");
    let lines = text.lines().filter(|l| l.starts_with(name));
    lines
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}
