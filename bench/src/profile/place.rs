//! Where a sample belongs.

/// Is one line of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    symbol: &'a str,
    kernel: bool,
}

/// Reads `address symbol (object)`; `None` for any other line.
pub(super) fn frame(line: &str) -> Option<Frame<'_>> {
    let line = line.trim();
    let (rest, object) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let (_address, symbol) = rest.split_once(' ')?;
    let kernel = object.starts_with("[kernel") || object.starts_with("[guest.kernel");
    Some(Frame { symbol, kernel })
}

/// System calls by what they are for.
const CALLS: &[(&str, &str)] = &[
    ("sys_send", "kernel: send"),
    ("sys_write", "kernel: send"),
    ("sys_recv", "kernel: receive"),
    ("sys_read", "kernel: receive"),
    ("sys_epoll", "kernel: poll"),
    ("sys_futex", "kernel: wake other threads"),
    ("sys_fdatasync", "kernel: sync the log"),
    ("sys_fsync", "kernel: sync the log"),
    ("sys_sync_file_range", "kernel: sync the log"),
    ("sys_pwrite", "kernel: write files"),
    ("sys_madvise", "kernel: memory"),
    ("sys_mmap", "kernel: memory"),
    ("sys_munmap", "kernel: memory"),
    ("exc_page_fault", "kernel: memory"),
    ("asm_exc_page_fault", "kernel: memory"),
];

/// Crates, and functions of libc, by what they are for.
const CRATES: &[(&str, &str)] = &[
    ("h2", "HTTP/2 (h2, hyper)"),
    ("hyper", "HTTP/2 (h2, hyper)"),
    ("hyper_util", "HTTP/2 (h2, hyper)"),
    ("http", "HTTP/2 (h2, hyper)"),
    ("http_body", "HTTP/2 (h2, hyper)"),
    ("http_body_util", "HTTP/2 (h2, hyper)"),
    ("fnv", "HTTP/2 (h2, hyper)"),
    ("tonic", "gRPC and messages (tonic, prost)"),
    ("tonic_prost", "gRPC and messages (tonic, prost)"),
    ("tower", "gRPC and messages (tonic, prost)"),
    ("prost", "gRPC and messages (tonic, prost)"),
    ("proto", "gRPC and messages (tonic, prost)"),
    ("mvcc", "state machine (mvcc)"),
    ("member", "consensus (raft)"),
    ("raft", "consensus (raft)"),
    ("raft_proto", "consensus (raft)"),
    ("protobuf", "consensus (raft)"),
    ("disk", "log and rows (disk, sled)"),
    ("sled", "log and rows (disk, sled)"),
    ("crc32fast", "log and rows (disk, sled)"),
    ("kvserver", "server (kvserver)"),
    ("rustls", "TLS (rustls)"),
    ("tokio_rustls", "TLS (rustls)"),
    ("aws_lc_rs", "TLS (rustls)"),
    ("ring", "TLS (rustls)"),
    ("apiserver", "server (apiserver)"),
    ("watchcache", "watch cache"),
    ("registry", "kinds (registry, schema)"),
    ("schema", "kinds (registry, schema)"),
    ("fieldmerge", "field ownership (fieldmerge)"),
    ("meta", "JSON (serde_json, meta)"),
    ("serde", "JSON (serde_json, meta)"),
    ("serde_core", "JSON (serde_json, meta)"),
    ("serde_json", "JSON (serde_json, meta)"),
    ("tokio", "runtime (tokio)"),
    ("tokio_util", "runtime (tokio)"),
    ("mio", "runtime (tokio)"),
    ("futures", "runtime (tokio)"),
    ("futures_util", "runtime (tokio)"),
    ("parking_lot", "runtime (tokio)"),
    ("parking_lot_core", "runtime (tokio)"),
    ("bytes", "buffers (bytes)"),
    ("prometheus_client", "metrics"),
    ("tracing", "metrics"),
    ("tracing_core", "metrics"),
    ("hashbrown", "hashing"),
];

/// Words in names of libc's functions.
const LIBC: &[(&str, &str)] = &[
    ("mem", "copies (memcpy)"),
    ("alloc", "allocator (malloc)"),
    ("free", "allocator (malloc)"),
    ("arena", "allocator (malloc)"),
    ("unlink_chunk", "allocator (malloc)"),
    ("sysmalloc", "allocator (malloc)"),
];

/// Says where a sample belongs, by its frames from the inside out.
pub(super) fn of(frames: &[Frame<'_>]) -> &'static str {
    let Some(leaf) = frames.first() else {
        return "other";
    };
    if leaf.kernel {
        let within = frames.iter().take_while(|frame| frame.kernel);
        let calls = within.filter_map(|frame| first(CALLS, |part| frame.symbol.contains(part)));
        // The outermost: what was called, not what that needed.
        return calls.last().unwrap_or("kernel: other");
    }
    let by_crate = crates(leaf.symbol).find_map(|name| first(CRATES, |krate| krate == name));
    let is_plain = !leaf.symbol.contains("::");
    let by_word = || first(LIBC, |word| is_plain && leaf.symbol.contains(word));
    by_crate.or_else(by_word).unwrap_or("other")
}

fn first(places: &[(&str, &'static str)], holds: impl Fn(&str) -> bool) -> Option<&'static str> {
    let mut places = places.iter();
    places
        .find(|(part, _)| holds(part))
        .map(|(_, place)| *place)
}

/// Walks the crates that a symbol names, from the left.
fn crates(symbol: &str) -> impl Iterator<Item = &str> {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    // What follows `::` is within a crate.
    symbol.match_indices("::").filter_map(move |(at, _)| {
        let before = &symbol[..at];
        let start = before.rfind(|c| !is_ident(c)).map_or(0, |at| at + 1);
        let (outside, ident) = before.split_at(start);
        (!ident.is_empty() && !outside.ends_with("::")).then_some(ident)
    })
}

/// Names a function for a table, without its hash.
pub(super) fn name(frame: &Frame<'_>) -> String {
    const LENGTH_MAX: usize = 72;
    let without_hash = frame.symbol.rsplit_once("::h").filter(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    let symbol = without_hash.map_or(frame.symbol, |(symbol, _)| symbol);
    let symbol = symbol.replace(['|', '`'], " ");
    symbol.chars().take(LENGTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(stack: &[&str]) -> &'static str {
        let frames: Vec<_> = stack.iter().filter_map(|line| frame(line)).collect();
        assert_eq!(frames.len(), stack.len(), "{stack:?}");
        of(&frames)
    }

    #[test]
    fn a_function_belongs_to_the_first_crate_it_names() {
        for (symbol, want) in [
            ("<mvcc::range::Reading>::choose", "state machine (mvcc)"),
            (
                "core::ptr::drop_in_place<h2::frame::Data>",
                "HTTP/2 (h2, hyper)",
            ),
            (
                "tokio::runtime::task::raw::poll<kvserver::edge::Call>",
                "runtime (tokio)",
            ),
            ("__memmove_avx_unaligned_erms", "copies (memcpy)"),
            ("_int_malloc", "allocator (malloc)"),
            ("cfree@GLIBC_2.2.5", "allocator (malloc)"),
            ("[unknown]", "other"),
        ] {
            assert_eq!(
                place(&[&format!("55 {symbol} (/opt/keelson)")]),
                want,
                "{symbol}"
            );
        }
    }

    #[test]
    fn a_name_loses_its_hash_and_nothing_else() {
        let named = |symbol| {
            name(&Frame {
                symbol,
                kernel: false,
            })
        };
        assert_eq!(named("kvserver::handle::put"), "kvserver::handle::put");
        assert_eq!(named("a::b::h0123456789abcdef"), "a::b");
    }

    #[test]
    fn the_kernel_works_for_whoever_called_it() {
        let sent = [
            "ff tcp_v4_rcv ([kernel.kallsyms])",
            "ff __x64_sys_sendto ([kernel.kallsyms])",
            "7f __send (/lib/libc.so.6)",
        ];
        assert_eq!(place(&sent), "kernel: send");
        assert_eq!(place(&["ff schedule ([kernel.kallsyms])"]), "kernel: other");
    }
}
