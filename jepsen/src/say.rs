//! What is told to people: results on standard output, trouble on standard error.

use std::io::Write;

/// Prints one line of the result. A reader who hung up misses it; nothing else does.
pub(crate) fn line(text: &str) {
    let _hung_up = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints one line of trouble.
pub(crate) fn error(text: &str) {
    let _hung_up = writeln!(std::io::stderr().lock(), "{text}");
}
