module runner

go 1.22

require packhorse.io/clients/go v0.0.0

replace packhorse.io/clients/go => ./client
