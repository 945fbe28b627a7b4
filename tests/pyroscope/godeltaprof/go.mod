module github.com/pyroscope-io/godeltaprof

go 1.26
