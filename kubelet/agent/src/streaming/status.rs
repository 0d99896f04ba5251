//! What the error channel says at the end: a Status in JSON.

use meta::Status;
use serde_json::{Value, json};

/// The status of a command that ended with 0, or of a container that ended.
pub(super) fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// The status of a command that ended with another code.
pub(super) fn exited(command: &str, code: i32) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!(
            "command terminated with non-zero exit code: error executing command {command}, exit code {code}"
        ),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// The status of what could not be done.
pub(super) fn failed(what: &str) -> Value {
    let status = Status::internal(what);
    serde_json::to_value(&status).unwrap_or_else(|_| json!({"status": "Failure", "message": what}))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn exit_codes_are_where_clients_look_for_them() {
        let status = exited("[sh -c exit 3]", 3);
        assert_eq!(status["status"], "Failure");
        assert_eq!(status["reason"], "NonZeroExitCode");
        let cause = &status["details"]["causes"][0];
        assert_eq!(
            (&cause["reason"], &cause["message"]),
            (&json!("ExitCode"), &json!("3"))
        );
        let message = status["message"].as_str().unwrap();
        assert!(message.ends_with("error executing command [sh -c exit 3], exit code 3"));
    }

    #[test]
    fn failures_are_internal_errors() {
        let status = failed("error executing command in container: no");
        assert_eq!(status["reason"], "InternalError");
        assert_eq!(
            status["message"],
            "Internal error occurred: error executing command in container: no"
        );
    }
}
