//! What a flag is: its name, the values it takes, and whether anything comes of it.
//!
//! One table serves the command line, the environment, the configuration file and
//! the help, so that a flag is declared once and cannot differ between them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::value;
use crate::config::StartError;

/// What a flag's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// Several texts, comma-separated.
    List,
    /// `--x` alone, or true and false in any of Go's spellings.
    Bool,
    /// A number from zero.
    Count,
    /// A number that may be negative.
    Number,
    /// A time as Go writes it.
    Duration,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// What comes of a flag that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does what etcd's documentation says.
    Works,
    /// Nothing, because there is no such thing here; the text says why. A warning
    /// names the flag at the start.
    Nothing(&'static str),
    /// A value other than the default is refused: to go on without would do harm.
    Refused(&'static str),
}

/// One flag of etcd's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Without dashes.
    pub(crate) name: &'static str,
    /// Its other spelling, from before it left `experimental-`.
    pub(crate) old: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
    pub(crate) effect: Effect,
}

impl Flag {
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            old: None,
            kind,
            default,
            help,
            effect: Effect::Works,
        }
    }

    /// Gives it a second spelling.
    pub(crate) const fn old(mut self, spelling: &'static str) -> Self {
        self.old = Some(spelling);
        self
    }

    /// Says that nothing comes of it.
    pub(crate) const fn nothing(mut self, why: &'static str) -> Self {
        self.effect = Effect::Nothing(why);
        self
    }

    /// Says that only its default is accepted.
    pub(crate) const fn refused(mut self, why: &'static str) -> Self {
        self.effect = Effect::Refused(why);
        self
    }

    fn error(&self, reason: String) -> StartError {
        StartError::Flag {
            flag: self.name,
            reason,
        }
    }

    /// Checks a value's form.
    fn check(&self, text: &str) -> Result<(), StartError> {
        let good = match self.kind {
            Kind::Text | Kind::List => return Ok(()),
            Kind::Bool => value::boolean(text).is_some(),
            Kind::Count => value::count(text).is_some(),
            Kind::Number => value::number(text).is_some(),
            // An absent value is etcd's own default for some of them.
            Kind::Duration => text.is_empty() || value::duration(text).is_some(),
            Kind::Choice(words) => words.contains(&text),
        };
        let wanted = match self.kind {
            Kind::Bool => "true or false".to_owned(),
            Kind::Count => "a number from 0".to_owned(),
            Kind::Number => "a number".to_owned(),
            Kind::Duration => "a duration such as 5s, 10m or 1h30m".to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Text | Kind::List => String::new(),
        };
        match good {
            true => Ok(()),
            false => Err(self.error(format!("{text:?} is not {wanted}"))),
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    CommandLine,
    Environment,
    File,
}

/// Finds a flag by either spelling.
pub(crate) fn find(name: &str) -> Option<&'static Flag> {
    super::flags().find(|flag| flag.name == name || flag.old == Some(name))
}

/// What was given, by flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    given: BTreeMap<&'static str, (String, Source)>,
    from_file: bool,
}

impl Values {
    /// Notes a value; a later one of the same flag takes its place.
    pub(crate) fn set(
        &mut self,
        flag: &'static Flag,
        text: &str,
        source: Source,
    ) -> Result<(), StartError> {
        flag.check(text)?;
        self.given.insert(flag.name, (text.to_owned(), source));
        Ok(())
    }

    /// Notes that a configuration file was read, and nothing else counts.
    pub(crate) fn read_from_file(&mut self) {
        self.from_file = true;
    }

    /// Says whether the values are a configuration file's.
    pub(crate) fn are_a_files(&self) -> bool {
        self.from_file
    }

    /// Says whether a flag was given.
    pub(crate) fn is_set(&self, name: &'static str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns who gave a flag its value.
    pub(crate) fn source(&self, name: &'static str) -> Option<Source> {
        self.given.get(name).map(|(_, source)| *source)
    }

    /// Returns what was given, in the order of names.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.given
            .iter()
            .map(|(name, (text, _))| (*name, text.as_str()))
    }

    /// Returns a flag's value, or its default.
    pub(crate) fn text(&self, name: &'static str) -> &str {
        match self.given.get(name) {
            Some((text, _)) => text,
            None => find(name).map_or("", |flag| flag.default),
        }
    }

    /// Returns the value unless it is empty.
    pub(crate) fn some_text(&self, name: &'static str) -> Option<String> {
        let text = self.text(name);
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(crate) fn path(&self, name: &'static str) -> Option<PathBuf> {
        self.some_text(name).map(PathBuf::from)
    }

    /// Returns the parts of a list, each once, in the order given.
    pub(crate) fn list(&self, name: &'static str) -> Vec<String> {
        let mut parts = Vec::new();
        for part in self.text(name).split(',').map(str::trim) {
            if !part.is_empty() && !parts.iter().any(|known| known == part) {
                parts.push(part.to_owned());
            }
        }
        parts
    }

    pub(crate) fn boolean(&self, name: &'static str) -> bool {
        value::boolean(self.text(name)).unwrap_or(false)
    }

    pub(crate) fn count(&self, name: &'static str) -> u64 {
        value::count(self.text(name)).unwrap_or(0)
    }

    pub(crate) fn number(&self, name: &'static str) -> i64 {
        value::number(self.text(name)).unwrap_or(0)
    }

    pub(crate) fn duration(&self, name: &'static str) -> Duration {
        value::duration(self.text(name)).unwrap_or_default()
    }

    /// Refuses what must not be ignored; returns a warning for each flag that is
    /// given and of which nothing comes.
    pub(crate) fn effects(&self) -> Result<Vec<String>, StartError> {
        let mut warnings = Vec::new();
        for (name, text) in self.given() {
            let Some(flag) = find(name) else { continue };
            let default = text == flag.default
                || (flag.kind == Kind::Bool
                    && value::boolean(text) == value::boolean(flag.default))
                || (flag.kind == Kind::Duration
                    && value::duration(text) == value::duration(flag.default));
            match flag.effect {
                Effect::Refused(why) if !default => return Err(flag.error(why.to_owned())),
                Effect::Nothing(why) => {
                    warnings.push(format!("--{name}={text} has no effect: {why}"));
                }
                Effect::Works | Effect::Refused(_) => {}
            }
        }
        Ok(warnings)
    }
}
