//! `$(VAR)` references in environment values, commands and arguments.
//!
//! The rules are Kubernetes' `third_party/forked/golang/expansion`: `$(NAME)`
//! is replaced if NAME is known and left as written otherwise, `$$` is one `$`
//! (so `$$(NAME)` escapes a reference), and anything else after `$` is literal.

/// Expands the references of `input`, looking names up with `lookup`.
pub fn expand<'a>(input: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        let tail = &rest[dollar + 1..];
        rest = if let Some(after) = tail.strip_prefix('$') {
            out.push('$');
            after
        } else if let Some((name, after)) =
            tail.strip_prefix('(').and_then(|open| open.split_once(')'))
        {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            after
        } else {
            out.push('$');
            tail
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod test {
    use super::expand;

    #[test]
    fn references_escapes_and_literals() {
        let lookup = |name: &str| match name {
            "VAR_A" => Some("A"),
            "VAR_B" => Some("B"),
            "VAR_EMPTY" => Some(""),
            "VAR_REF" => Some("$(VAR_A)"),
            _ => None,
        };
        let cases = [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("$(VAR_A)$(VAR_B)", "AB"),
            ("$$(VAR_A)", "$(VAR_A)"),
            ("$$$(VAR_A)", "$A"),
            ("$(VAR_MISSING)x", "$(VAR_MISSING)x"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            // A value that looks like a reference is not expanded again.
            ("$(VAR_REF)", "$(VAR_A)"),
            ("$(VAR_A", "$(VAR_A"),
            ("$VAR_A", "$VAR_A"),
            ("cost: $", "cost: $"),
            ("$$", "$"),
            ("é$(VAR_A)é", "éAé"),
            ("", ""),
        ];
        for (input, expected) in cases {
            assert_eq!(expand(input, lookup), expected, "{input}");
        }
    }
}
