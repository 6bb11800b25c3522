"""S3's error codes, and the code of each of our errors."""

from turnout.errors import (
    AlreadyExists,
    Busy,
    Denied,
    Invalid,
    NotFound,
    TimedOut,
    TooLarge,
    TurnoutError,
    Unauthenticated,
    Unavailable,
    Unsupported,
    WrongState,
)
from turnout.storage import KeyGone

STATUS = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "BucketAlreadyExists": 409,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "IncompleteBody": 400,
    "IncorrectNumberOfFilesInPostRequest": 400,
    "InsufficientStorage": 507,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidToken": 400,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidDigest": 400,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidPolicyDocument": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "KMS.NotFoundException": 400,
    "MalformedPOSTRequest": 400,
    "MalformedTrailerError": 400,
    "MalformedXML": 400,
    "MaxPostPreDataLengthExceededError": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "NotModified": 304,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "RequestTimeout": 400,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "UserKeyMustBeSpecified": 400,
    "XAmzContentSHA256Mismatch": 400,
}


class S3Error(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return STATUS[self.code]


def translate(error: TurnoutError) -> S3Error:
    match error:
        case NotFound(field="bucket"):
            code = "NoSuchBucket"
        case NotFound():
            code = "NoSuchKey"
        case KeyGone():
            code = "KMS.NotFoundException"
        case WrongState(field="bucket"):
            code = "BucketNotEmpty"
        case AlreadyExists(field="bucket"):
            code = "BucketAlreadyOwnedByYou"
        case AlreadyExists() | WrongState():
            code = "PreconditionFailed"
        case Unauthenticated():
            code = "InvalidAccessKeyId"
        case Denied():
            code = "AccessDenied"
        case Invalid():
            code = "InvalidArgument"
        case TooLarge():
            code = "EntityTooLarge"
        case Unsupported():
            code = "NotImplemented"
        case TimedOut():
            code = "ServiceUnavailable"
        case Busy():
            code = "SlowDown"
        case Unavailable():
            code = "InsufficientStorage"
        case _:
            code = "InternalError"
    return S3Error(code, error.message)
