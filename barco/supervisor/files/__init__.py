"""What a supervisor keeps beside broker.json that nothing depends on."""
