//! What may be a name, and the words in which Kubernetes says that it may not.

/// The longest RFC 1123 subdomain, and so the longest ordinary object name.
pub const SUBDOMAIN_MAX: usize = 253;
/// The longest RFC 1123 or RFC 1035 label.
pub const LABEL_MAX: usize = 63;

const SUBDOMAIN_MSG: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_MSG: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_MSG: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_MSG: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_MSG: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let b = text.as_bytes();
    !b.is_empty()
        && b.iter().all(|&c| lower_alnum(c) || c == b'-')
        && lower_alnum(b[0])
        && lower_alnum(b[b.len() - 1])
}

fn is_qualified_part(text: &str) -> bool {
    let b = text.as_bytes();
    !b.is_empty()
        && b.iter()
            .all(|&c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
        && b[0].is_ascii_alphanumeric()
        && b[b.len() - 1].is_ascii_alphanumeric()
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// Returns what is wrong with a name that must be an RFC 1123 subdomain.
pub fn subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !text.split('.').all(is_label) {
        errors.push(SUBDOMAIN_MSG.to_owned());
    }
    errors
}

/// Returns what is wrong with a name that must be an RFC 1123 label.
pub fn label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(text) {
        errors.push(LABEL_MSG.to_owned());
    }
    errors
}

/// Returns what is wrong with a name that must be an RFC 1035 label (Services).
pub fn label_1035_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(text) || !text.as_bytes()[0].is_ascii_lowercase() {
        errors.push(LABEL_1035_MSG.to_owned());
    }
    errors
}

/// Returns what is wrong with a qualified name: a label key, an annotation key,
/// a finalizer; `prefix/name` or `name`.
pub fn qualified_name_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                &QUALIFIED_MSG["name part ".len()..]
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    subdomain_errors(prefix)
                        .into_iter()
                        .map(|e| format!("prefix part {e}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_qualified_part(name) {
        errors.push(QUALIFIED_MSG.to_owned());
    }
    errors
}

/// Returns what is wrong with a label's value.
pub fn label_value_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        errors.push(LABEL_VALUE_MSG.to_owned());
    }
    errors
}

/// Returns what is wrong with a key of a ConfigMap or Secret.
pub fn config_key_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    let ok = !text.is_empty()
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'));
    if !ok {
        errors.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".to_owned());
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        t if t.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The characters of generated name suffixes: no vowels, so no words.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many characters are generated.
pub const SUFFIX_LEN: usize = 5;
/// The longest base a generated name keeps.
const GENERATE_BASE_MAX: usize = LABEL_MAX - SUFFIX_LEN;

/// Returns a name from `metadata.generateName` and random bits of the caller.
pub fn generate_name(base: &str, mut random: u64) -> String {
    let mut cut = base.len().min(GENERATE_BASE_MAX);
    while !base.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = base[..cut].to_owned();
    let n = SUFFIX_ALPHABET.len() as u64;
    for _ in 0..SUFFIX_LEN {
        name.push(char::from(
            SUFFIX_ALPHABET[usize::try_from(random % n).unwrap_or(0)],
        ));
        random /= n;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(subdomain_errors("web-1.example").is_empty());
        for bad in ["Web_1", "", "-a", "a-", "a..b", ".a"] {
            assert_eq!(subdomain_errors(bad).len(), 1, "{bad}");
        }
        assert_eq!(subdomain_errors(&"a".repeat(254)).len(), 1);
        assert!(label_errors("a.b").len() == 1 && label_errors("a-b").is_empty());
        assert!(label_1035_errors("1a").len() == 1 && label_1035_errors("a1").is_empty());
    }

    #[test]
    fn qualified_names_and_values() {
        for ok in ["app", "app.kubernetes.io/name", "A_b.c-d"] {
            assert!(qualified_name_errors(ok).is_empty(), "{ok}");
        }
        for bad in ["", "/a", "a/b/c", "a/", "-a", "Foo.com/x"] {
            assert!(!qualified_name_errors(bad).is_empty(), "{bad}");
        }
        assert!(label_value_errors("").is_empty());
        assert!(!label_value_errors("a b").is_empty());
    }

    #[test]
    fn generated_names_keep_the_base_and_fit_a_label() {
        let name = generate_name(&"x".repeat(100), 123_456_789);
        assert_eq!(name.len(), LABEL_MAX);
        assert_ne!(generate_name("a-", 1), generate_name("a-", 2));
    }
}
