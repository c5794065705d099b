"""Did this row, or this client, take part?"""
