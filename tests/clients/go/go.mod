module packhorse

go 1.22
