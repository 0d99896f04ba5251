//! Sets of indexes as text: `0,2-4`.

/// An interval of indexes.
type Interval = (i64, i64);

fn interval(text: &str, completions: i64) -> Result<Interval, String> {
    let number = |text: &str| {
        let parsed = text.parse::<i64>();
        let number = parsed
            .map_err(|_ignored| format!("cannot convert string to integer for index: {text:?}"))?;
        match number < completions {
            true => Ok(number),
            false => Err(format!("too large index: {text:?}")),
        }
    };
    let parts: Vec<&str> = text.split('-').collect();
    match parts.as_slice() {
        [one] => number(one).map(|n| (n, n)),
        [first, last] => {
            let (first, last) = (number(first)?, number(last)?);
            match first < last {
                true => Ok((first, last)),
                false => Err(format!(
                    "non-increasing order, previous: {first}, current: {last}"
                )),
            }
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

/// Reads a set and returns how many indexes it has.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!(
                "non-increasing order, previous: {last}, current: {first}"
            ));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Returns the first index that two sets share; what cannot be read is passed
/// over.
pub(super) fn shared(a: &str, b: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<Interval> {
        let parts = text.split(',');
        parts
            .filter_map(|p| interval(p, completions).ok())
            .collect()
    };
    let others = read(b);
    read(a)
        .into_iter()
        .flat_map(|(x, y)| others.iter().map(move |(v, w)| (x.max(*v), y.min(*w))))
        .filter(|(first, last)| first <= last)
        .map(|(first, _)| first)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_counted_or_refused() {
        assert_eq!(count("", 5), Ok(0));
        assert_eq!(count("0,2-4", 5), Ok(4));
        for (text, words) in [
            ("5", "too large index: \"5\""),
            ("x", "cannot convert string to integer for index: \"x\""),
            ("2,1", "non-increasing order, previous: 2, current: 1"),
            ("3-1", "non-increasing order, previous: 3, current: 1"),
        ] {
            assert_eq!(count(text, 5).unwrap_err(), words);
        }
        assert!(count("1-2-3", 5).unwrap_err().contains("at most two parts"));
        assert_eq!(shared("0-2", "2-3", 5), Some(2));
        assert_eq!(shared("0,4", "1-3", 5), None);
    }
}
