//! Errors as grpc-gateway tells them: an HTTP status, and a body with the message
//! twice.

use http::StatusCode;
use tonic::{Code, Status};

use super::encode;
use crate::edge::answer::{self, Answer, JSON};

/// Returns the HTTP status that stands for a code (grpc-gateway 1.16:
/// HTTPStatusFromCode).
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Answers with an error.
pub(super) fn answer(status: &Status) -> Answer {
    answer::whole(http_status(status.code()), JSON, body(status))
}

/// Writes an error as the body of an answer.
pub(super) fn body(status: &Status) -> String {
    let mut message = String::new();
    encode::text(status.message(), &mut message);
    let code = status.code() as i32;
    match status.message() {
        "" => format!("{{\"code\":{code}}}"),
        _ => format!("{{\"error\":{message},\"code\":{code},\"message\":{message}}}"),
    }
}

/// Writes an error as the last line of a stream.
pub(super) fn line(status: &Status) -> String {
    let mut message = String::new();
    encode::text(status.message(), &mut message);
    let http = http_status(status.code());
    format!(
        "{{\"error\":{{\"grpc_code\":{},\"http_code\":{},\"message\":{message},\
         \"http_status\":\"{}\"}}}}",
        status.code() as i32,
        http.as_u16(),
        http.canonical_reason().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_written_as_etcd_3_5_writes_them() {
        let status = Status::not_found("etcdserver: member not found");
        assert_eq!(
            body(&status),
            r#"{"error":"etcdserver: member not found","code":5,"message":"etcdserver: member not found"}"#
        );
        let status = Status::unknown("auth: user name is empty");
        assert_eq!(
            line(&status),
            r#"{"error":{"grpc_code":2,"http_code":500,"message":"auth: user name is empty","http_status":"Internal Server Error"}}"#
        );
    }
}
