"""The part of the S3 API that boto3, `aws s3`, obstore and rclone use, over the embedded buckets."""

from turnout.doors.s3.app import app

__all__ = ["app"]
