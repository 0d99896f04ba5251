//! The pod-template-hash: a short stable name for a pod template.
//!
//! Upstream hashes a Go dump of the template, which nobody else can reproduce;
//! what tools rely on is the form (ten characters that spell no word) and that
//! equal templates get equal names. Here the canonical serialisation is the
//! typed template as JSON: fields in a fixed order, labels sorted.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// Is the label that tells one Deployment's ReplicaSets and pods apart.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Holds letters and digits that form no words: no vowels, no 0, 1 or 3 that
/// read as vowels (upstream `util/rand`).
const SAFE_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Hashes bytes with 32-bit FNV-1a.
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// Encodes text so that it cannot spell a word.
pub fn safe_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| char::from(SAFE_ALPHABET[usize::from(byte) % SAFE_ALPHABET.len()]))
        .collect()
}

/// Names a template; `collisions` moves on to another name when one is taken.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut bytes = serde_json::to_vec(template).expect("typed objects serialise");
    if let Some(count) = collisions {
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    safe_encode(&fnv1a_32(&bytes).to_string())
}

/// Returns the template without the label this module adds.
pub fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut plain = template.clone();
    if let Some(metadata) = &mut plain.metadata {
        if let Some(labels) = &mut metadata.labels {
            labels.remove(POD_TEMPLATE_HASH);
        }
        // The API does not tell an absent map from an empty one.
        metadata.labels = metadata.labels.take().filter(|map| !map.is_empty());
        metadata.annotations = metadata.annotations.take().filter(|map| !map.is_empty());
        metadata.creation_timestamp = None;
        if *metadata == Default::default() {
            plain.metadata = None;
        }
    }
    plain
}

/// Tells whether two templates make the same pods.
pub fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    without_hash(a) == without_hash(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }))
        .unwrap()
    }

    #[test]
    fn fnv_vectors_of_the_reference() {
        // Landon Noll's published test vectors.
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a_32(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn names_are_short_safe_and_distinct() {
        let one = template_hash(&template("a"), None);
        assert_eq!(one, template_hash(&template("a"), None));
        assert_ne!(one, template_hash(&template("b"), None));
        assert_ne!(one, template_hash(&template("a"), Some(1)));
        assert!(
            one.len() <= 10 && one.bytes().all(|byte| SAFE_ALPHABET.contains(&byte)),
            "{one}"
        );
    }

    #[test]
    fn the_hash_label_does_not_make_a_difference() {
        let plain = template("a");
        let mut labelled = plain.clone();
        labelled
            .metadata
            .get_or_insert_default()
            .labels
            .get_or_insert_default()
            .insert(POD_TEMPLATE_HASH.into(), "x".into());
        assert!(same_template(&plain, &labelled));
        assert!(!same_template(&plain, &template("b")));
    }
}
