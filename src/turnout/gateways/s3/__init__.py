"""The part of the S3 API that boto3, `aws s3`, obstore and rclone use, over the embedded buckets."""
