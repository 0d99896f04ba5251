//! Says how long the checkers take for a million operations.
//!
//! ```text
//! cargo run --release -p checkers --example million [OPERATIONS]
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the clock that the library may not have"
)]

use std::{error::Error, io::Write, time::Instant};

use checkers::{
    generate::{self, Shape},
    log::Log,
    wgl, witness,
};

fn main() -> Result<(), Box<dyn Error>> {
    let ops = std::env::args().nth(1).map(|ops| ops.parse());
    let shape = Shape {
        clients: 50,
        ops: ops.transpose()?.unwrap_or(1_000_000),
        keys: 10,
        unknown: 50,
        watchers: 0,
        ..Shape::default()
    };
    let mut out = std::io::stdout().lock();
    let start = Instant::now();
    let history = generate::history(1, &shape);
    writeln!(
        out,
        "{} operations made in {:.2?}",
        shape.ops,
        start.elapsed()
    )?;
    let start = Instant::now();
    let log = Log::merge(&history);
    writeln!(
        out,
        "log of {} put together in {:.2?}",
        log.until,
        start.elapsed()
    )?;
    let start = Instant::now();
    let verdict = witness::check_with(&history, &log);
    writeln!(
        out,
        "witness: {} in {:.2?}",
        verdict.word(),
        start.elapsed()
    )?;
    drop(history);
    let shape = Shape {
        clients: 5,
        ops: 100_000,
        keys: 500,
        unknown: 5,
        registers: true,
        watchers: 0,
    };
    let history = generate::history(2, &shape);
    let start = Instant::now();
    let report = wgl::check(&history, wgl::Budget::default());
    let word = report.verdict.word();
    writeln!(
        out,
        "wgl: {word} in {:.2?}, {} operations on {} keys",
        start.elapsed(),
        report.ops,
        report.keys
    )?;
    Ok(())
}
