//! Which machine the figures are of.

use serde::Serialize;

/// What a reader must know of it.
#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gb: u64,
    pub(crate) kernel: String,
}

impl Machine {
    /// Describes this one; what it does not tell is left empty.
    pub(crate) fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: (kilobytes + (1 << 19)) >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// Finds the first line of that name in a file of `name : value` lines.
fn field(text: &str, name: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(found, _)| found.trim() == name);
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: A B\nmodel name\t: C\n";
        assert_eq!(field(text, "model name"), "A B");
        assert_eq!(field(text, "flags"), "");
    }
}
