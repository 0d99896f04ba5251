//! What is read and written here is what serde_json reads and writes, and what is read
//! over an earlier state is what is read plainly.

use proptest::prelude::*;
use serde_json::json;

use super::read::DEPTH_MAX;
use super::*;
use crate::marks::{Marked, Marks};

/// What is read here is what `serde_json` reads; what it refuses is refused.
fn check(text: &str) -> Option<Tree> {
    let theirs = serde_json::from_str::<Value>(text);
    let ours = read(text);
    if let Some(tree) = &ours {
        let theirs = theirs.as_ref().unwrap_or_else(|e| panic!("{text:?}: {e}"));
        // Debug tells -0.0 from 0.0.
        assert_eq!(
            format!("{:?}", tree.value),
            format!("{theirs:?}"),
            "{text:?}"
        );
    }
    let either = from_slice(text.as_bytes()).map_err(|e| e.to_string());
    assert_eq!(either, theirs.map_err(|e| e.to_string()), "{text:?}");
    ours
}

#[test]
fn ordinary_json_is_read() {
    for text in [
        "{}",
        "[]",
        " [ ] ",
        "{ }",
        "null",
        "\t\"a\"\r\n",
        "[true, false , null]",
        r#"{"a":{"b":[1,-2,3.5,1e3,0,-0,0.0,"x"]},"c":""}"#,
        r#"{"b":1,"a":2,"é":"漢🦀","\u0061b":"\n\"\\\ud83e\udd80"}"#,
        "[18446744073709551615,18446744073709551616,-9223372036854775808,123456789012345678]",
        "[999999999999999999,1000000000000000000,-9223372036854775809]",
        r#"["1234567","12345678","123456789","1234567\\","12345678\"9"]"#,
    ] {
        assert!(check(text).is_some_and(|tree| !tree.twice), "{text}");
    }
}

#[test]
fn a_key_that_stands_twice_is_found() {
    for (text, twice, value) in [
        (r#"{"a":1,"a":2}"#, true, json!({"a": 2})),
        (r#"{"":1,"":2}"#, true, json!({"": 2})),
        (
            r#"{"b":1,"a":2,"c":3,"b":4}"#,
            true,
            json!({"a": 2, "b": 4, "c": 3}),
        ),
        (r#"{"a":1,"\u0061":2}"#, true, json!({"a": 2})),
        (r#"{"\u0061":1,"b":2,"a":3}"#, true, json!({"a": 3, "b": 2})),
        (r#"{"b":1,"\u0063":2,"b":3}"#, true, json!({"b": 3, "c": 2})),
        (
            r#"{"c":1,"b":2,"a":{"a":1},"d":{"a":1}}"#,
            false,
            json!({"a": {"a": 1}, "b": 2, "c": 1, "d": {"a": 1}}),
        ),
        (
            "{\"b\":0,\"a\":1,\"\u{10ffff}b\":2,\"\u{10ffff}b\":3}",
            true,
            json!({"a": 1, "b": 0, "\u{10ffff}b": 3}),
        ),
        (
            r#"[{"a":1},{"a":1,"b":[{"a":0,"a":0}]}]"#,
            true,
            json!([{"a": 1}, {"a": 1, "b": [{"a": 0}]}]),
        ),
    ] {
        assert_eq!(check(text), Some(Tree { value, twice }), "{text}");
    }
}

#[test]
fn what_is_not_in_order_is_left_to_others() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "\"",
        "{\"",
        "{\"a",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{1:2}",
        "{a:1}",
        "nul",
        "truex",
        "tru",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "--1",
        "1-1",
        "[1]x",
        "{}{}",
        "\"\u{1}\"",
        "\"\n\"",
        r#""\x""#,
        r#""\"#,
        r#""\u12""#,
        r#""\ud800""#,
        "\u{feff}{}",
        "'a'",
        "NaN",
        "[1}",
        "{]",
        "1e400",
    ] {
        assert_eq!(check(text), None, "{text:?}");
    }
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(check(&nested(DEPTH_MAX)).is_some());
    for deep in [DEPTH_MAX + 2, 127, 128, 10_000] {
        assert_eq!(check(&nested(deep)), None);
    }
    assert!(from_slice(b"\"\xff\"").is_err());
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z\"\\\\\n ]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::vec(("[a-c]{0,2}|\\PC{0,3}", inner), 0..8)
                .prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(value in tree(), pretty in any::<bool>()) {
        let text = match pretty {
            true => serde_json::to_string_pretty(&value).unwrap(),
            false => value.to_string(),
        };
        let tree = check(&text);
        prop_assert!(tree.as_ref().is_some_and(|tree| !tree.twice));
        // To the last bit of each number.
        prop_assert_eq!(tree.map(|tree| tree.value), Some(value.clone()));
        let mut written = Vec::new();
        write(&mut written, &value).unwrap();
        prop_assert_eq!(String::from_utf8(written).unwrap(), value.to_string());
    }

    /// Cut short, or with something else somewhere in it.
    #[test]
    fn whatever_comes_is_read_like_by_others(
        value in tree(), cut in any::<prop::sample::Index>(), with in "[\\[\\]{}\",:\\\\0-9eE+. a]{0,2}",
    ) {
        let text = value.to_string();
        let mut at = cut.index(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        check(&text[..at]);
        check(&format!("{}{with}{}", &text[..at], &text[at..]));
    }

    #[test]
    fn the_end_of_a_string_is_found(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let ends = |b: &u8| matches!(b, b'"' | b'\\' | 0..=0x1f);
        prop_assert_eq!(plain(&bytes), bytes.iter().position(ends).unwrap_or(bytes.len()));
    }
}

/// Reads a text over the tree of another: that makes no difference to the tree, and
/// what is said to stand in both is the same in both.
fn check_over(before: &str, text: &str) {
    let Some((was, marks)) = read_over(before, None) else {
        return;
    };
    if was.twice {
        return;
    }
    let marked = Marked {
        text: before.as_bytes(),
        marks: &marks,
    };
    let mut tree = was.value.clone();
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("more".to_owned(), 1.into());
    }
    let over = read_over(text, Some(Known { tree, marked }));
    let (is, new_marks) = over.map_or((None, Marks::default()), |(t, m)| (Some(t), m));
    assert_eq!(is, read(text), "{text} over {before}");
    let Some(is) = is.filter(|is| !is.twice) else {
        return;
    };
    let new = Marked {
        text: text.as_bytes(),
        marks: &new_marks,
    };
    let same = new.same_as(marked);
    for (name, value) in was.value.as_object().into_iter().flatten() {
        if same.member(name) {
            assert_eq!(
                is.value.get(name),
                Some(value),
                "{name}: {text} over {before}"
            );
        }
    }
    let metadata = |of: &Value| of.get("metadata").and_then(Value::as_object).cloned();
    for (name, value) in metadata(&was.value).unwrap_or_default() {
        if same.metadata(&name) {
            let now = metadata(&is.value).unwrap_or_default();
            assert_eq!(now.get(&name), Some(&value), "{name}: {text} over {before}");
        }
    }
}

#[test]
fn what_stays_is_not_read_again() {
    let before = r#"{"kind":"A","metadata":{"name":"a","uid":"u"},"spec":{"a":[1,{"b":2}]}}"#;
    let (tree, marks) = read_over(before, None).unwrap();
    let marked = Marked {
        text: before.as_bytes(),
        marks: &marks,
    };
    let mut value = tree.value;
    // Would not be there if the member had been read.
    value["spec"]["mark"] = true.into();
    let text =
        r#"{"metadata":{"v":"1","name":"b","uid":"u"},"kind":"A","spec" : {"a":[1,{"b":2}]} }"#;
    let known = Known {
        tree: value,
        marked,
    };
    let (over, marks) = read_over(text, Some(known)).unwrap();
    let wanted = json!({
        "kind": "A", "metadata": {"name": "b", "uid": "u", "v": "1"},
        "spec": {"a": [1, {"b": 2}], "mark": true},
    });
    assert_eq!(over.value, wanted);
    let new = Marked {
        text: text.as_bytes(),
        marks: &marks,
    };
    let same = new.same_as(marked);
    let named = |names: [&str; 3]| names.map(|name| same.member(name));
    assert_eq!(named(["kind", "metadata", "spec"]), [true, false, true]);
    let named = |names: [&str; 3]| names.map(|name| same.metadata(name));
    assert_eq!(named(["name", "uid", "v"]), [false, true, false]);
}

#[test]
fn texts_that_begin_the_same_are_told_apart() {
    for (before, text) in [
        (r#"{"a":1}"#, r#"{"a":12}"#),
        (r#"{"a":12}"#, r#"{"a":1}"#),
        (r#"{"a":1,"b":2}"#, r#"{"b":2}"#),
        (r#"{"b":2}"#, r#"{"a":1,"b":2,"c":3}"#),
        (r#"{"a":{"x":1}}"#, r#"{"a":{"x":2},"a":{"x":1}}"#),
        (r#"{"a":{"x":1}}"#, r#"{"\u0061":{"x":2},"a":{"x":1}}"#),
        (r#"{"a":1,"b":2}"#, r#"{"b":2,"\u0061":1,"a":3}"#),
        (r#"{"a":"\n"}"#, r#"{"a":"\u000a"}"#),
        (
            r#"{"a":[1,2,3],"b":{"x":1,"y":2}}"#,
            r#"{"a":[1],"b":{"y":2}}"#,
        ),
        (r#"{"metadata":1}"#, r#"{"metadata":{"a":1}}"#),
        (r#"{"metadata":{"a":1}}"#, r#"{"metadata":[]}"#),
        ("[]", "{}"),
        ("{}", "[1]"),
        (r#"{"a":1}"#, r#"{"a":1"#),
        (r#"{"a":1}"#, r#"{"a":1]"#),
    ] {
        check_over(before, text);
    }
    let many = |n: usize| {
        let members: Vec<_> = (0..n).rev().map(|n| format!("\"{n}\":{n}")).collect();
        format!("{{{}}}", members.join(","))
    };
    for n in [3, 63, 64, 65, 66, 200] {
        check_over(&many(n), &many(n + 1));
        check_over(&many(n + 1), &many(n));
    }
}

/// An object's text, its members in any order and some of them twice.
fn object_text() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(vec!["metadata", "spec", "a", "\\u0061", "b", "c"]);
    let text = || tree().prop_map(|value| value.to_string());
    let inner = prop::collection::vec((name(), text()), 0..5);
    let value = prop_oneof![text(), inner.prop_map(|members| written(&members))];
    let members = prop::collection::vec((name(), value), 0..6);
    members.prop_map(|members| written(&members))
}

fn written(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\": {value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

proptest! {
    #[test]
    fn what_was_there_before_makes_no_difference(
        texts in prop::collection::vec(object_text(), 2), cut in any::<prop::sample::Index>(),
    ) {
        let [before, text] = texts.as_slice() else { unreachable!() };
        check_over(before, text);
        // Most of what was there is there again.
        let at = cut.index(before.len());
        if before.is_char_boundary(at) {
            check_over(before, &format!("{}7{}", &before[..at], &before[at..]));
            check_over(before, &before[..at]);
        }
    }
}
