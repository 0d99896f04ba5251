//! A log line as etcd's: one JSON object with `level`, `ts`, `caller`, `msg` and the
//! event's fields, in that order.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        let level = match *meta.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG | Level::TRACE => "debug",
        };
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        // The file and its folder, as zap shortens it.
        let file = meta.file().unwrap_or_default();
        let from = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        let caller = format!("{}:{}", &file[from..], meta.line().unwrap_or_default());
        let mut fields = Fields::default();
        event.record(&mut fields);
        write!(
            writer,
            "{{\"level\":\"{level}\",\"ts\":{},\"caller\":{},\"msg\":{}",
            Value::from(time),
            Value::from(caller),
            Value::from(fields.message)
        )?;
        for (name, value) in &fields.rest {
            write!(writer, ",{}:{value}", Value::from(name.as_str()))?;
        }
        writeln!(writer, "}}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

impl Fields {
    fn note(&mut self, field: &Field, value: Value) {
        self.rest.insert(field.name().replace('_', "-"), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.note(field, text.into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.note(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.note(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.note(field, value.into());
    }
}
