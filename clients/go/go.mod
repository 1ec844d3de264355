module packhorse.io/clients/go

go 1.22
