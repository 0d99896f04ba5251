//! Tells strategic merge patch what the schema table knows of a type's lists.

use std::borrow::Cow;

use meta::patch::strategic::{FieldRule, MergeSchema};

use crate::table::{DefId, Type, table};

/// A definition as strategic merge sees it.
#[derive(Clone, Copy, Debug)]
pub struct TypeRules(pub DefId);

impl MergeSchema for TypeRules {
    fn field(&self, name: &str) -> Option<FieldRule<Self>> {
        let field = table().get(self.0).field(name)?;
        let strategy = |word: &str| field.patch_strategy.split(',').any(|s| s == word);
        Some(FieldRule {
            merge: strategy("merge"),
            replace: strategy("replace"),
            merge_key: Cow::Borrowed(field.patch_merge_key),
            schema: element(&field.ty),
        })
    }
}

/// Returns the definition of a value's fields, or of a list's elements. The
/// values of a map have no rules of their own: its keys are no fields.
fn element(ty: &Type) -> Option<TypeRules> {
    match ty {
        Type::Ref(id) if !table().get(*id).fields.is_empty() => Some(TypeRules(*id)),
        Type::Array(inner) => element(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use meta::patch::strategic;
    use serde_json::json;

    use super::*;

    fn rules(name: &str) -> TypeRules {
        TypeRules(table().id(name).unwrap())
    }

    #[test]
    fn containers_merge_by_name_and_conditions_by_type() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "image": "a:1", "ports": [{"containerPort": 80}]}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [
            {"name": "a", "image": "a:2", "ports": [{"containerPort": 81}]}]}});
        let result = strategic::apply(&rules("io.k8s.api.core.v1.Pod"), pod, patch).unwrap();
        assert_eq!(
            result,
            json!({"spec": {"containers": [
                {"name": "a", "image": "a:2", "ports": [{"containerPort": 81}, {"containerPort": 80}]},
                {"name": "b"}]}})
        );
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}],
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DiskPressure"}]}});
        let result = strategic::apply(&rules("io.k8s.api.core.v1.Node"), node, patch).unwrap();
        assert_eq!(
            result["status"]["conditions"],
            json!([{"type": "Ready", "status": "False"}])
        );
    }

    #[test]
    fn labels_merge_and_tolerations_are_replaced() {
        let pod = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]},
            "spec": {"tolerations": [{"key": "a"}]}});
        let patch = json!({"metadata": {"labels": {"b": "2", "a": null}, "finalizers": ["x/z"]},
            "spec": {"tolerations": [{"key": "b"}]}});
        let result = strategic::apply(&rules("io.k8s.api.core.v1.Pod"), pod, patch).unwrap();
        assert_eq!(
            result,
            json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["x/z", "x/y"]},
                "spec": {"tolerations": [{"key": "b"}]}})
        );
    }
}
