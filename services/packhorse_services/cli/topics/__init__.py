"""`packhorse topics`: the topics of the journal."""
