//! What a request's query says of the stream it wants.

use crate::session::Wanted;

/// A query, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(pub(crate) Vec<(String, String)>);

impl Asked {
    /// Returns every value of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A flag is set by `1`.
    fn flag(&self, name: &str) -> bool {
        self.all(name).any(|value| matches!(value, "1" | "true"))
    }
}

/// Reads which streams of a command are wanted.
pub(crate) fn wanted(asked: &Asked) -> Result<Wanted, String> {
    let tty = asked.flag("tty");
    let wanted = Wanted {
        stdin: asked.flag("input"),
        stdout: asked.flag("output"),
        // A terminal shows both as one.
        stderr: asked.flag("error") && !tty,
        tty,
    };
    if wanted.stdin || wanted.stdout || wanted.stderr {
        Ok(wanted)
    } else {
        Err("you must specify at least 1 of stdin, stdout, stderr".to_owned())
    }
}

/// Reads the ports of a forward.
pub(crate) fn ports(asked: &Asked) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for text in asked.all("port") {
        if text.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for port in text.split(',') {
            match port.parse::<u16>() {
                Ok(0) => return Err(format!("port {text:?} must be > 0")),
                Ok(port) => ports.push(port),
                Err(e) => return Err(format!("unable to parse {text:?} as a port: {e}")),
            }
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod test {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Asked {
        let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
        Asked(pairs.iter().map(own).collect())
    }

    #[test]
    fn a_stream_must_be_wanted_and_a_terminal_has_one_output() {
        assert!(
            wanted(&asked(&[("tty", "1")]))
                .unwrap_err()
                .contains("at least 1")
        );
        let got = wanted(&asked(&[("output", "1"), ("error", "1"), ("tty", "1")])).unwrap();
        assert!(got.stdout && !got.stderr && got.tty && !got.stdin);
        let got = wanted(&asked(&[("input", "1"), ("error", "1")])).unwrap();
        assert!(got.stdin && got.stderr && !got.stdout);
    }

    #[test]
    fn ports_are_numbers_that_are() {
        assert_eq!(
            ports(&asked(&[("port", "80,8080"), ("port", "1")])),
            Ok(vec![80, 8080, 1])
        );
        assert_eq!(ports(&asked(&[])), Ok(vec![]));
        for bad in ["", "0", "70000", "-1", "http", "80,"] {
            assert!(ports(&asked(&[("port", bad)])).is_err(), "{bad}");
        }
    }
}
